// Markup shared by the sections of a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshfuse {

// Escapes text and attributes in double quotes.
[[nodiscard]] std::string escaped(std::string_view text);
// 0 B, 1.5 KiB
[[nodiscard]] std::string shortBytes(double bytes);
// The same as markup, with the exact number as a tooltip.
[[nodiscard]] std::string bytesMarkup(int64_t bytes);
// A tensor's sharding without its mesh, escaped.
[[nodiscard]] std::string withoutMesh(std::string_view sharding);
// 12 ns, 3.4 us, 5.6 ms
[[nodiscard]] std::string shortTime(int64_t nanoseconds);
// 0 to 3, 5
[[nodiscard]] std::string rankList(std::span<const int64_t> ranks);

// The program that the tensor names in a text belong to.
enum class TensorScope : uint8_t { Planned, OfRank };
// The text, escaped. All marks of one tensor are highlighted together; a tensor of the planned program links to its picture.
[[nodiscard]] std::string withTensors(std::string_view text, TensorScope scope);
// One line of a program, with its op and type in styles of their own.
[[nodiscard]] std::string programLine(std::string_view line, TensorScope scope);

// A number at the top of a page; `value` and `detail` are markup.
[[nodiscard]] std::string figure(std::string_view what, const std::string& value, std::string_view detail);
// 1 edge, 2 edges
[[nodiscard]] std::string counted(size_t n, std::string_view what);

[[nodiscard]] std::string section(std::string_view id, std::string_view title, std::string_view lead,
                                  std::string_view body);

}  // namespace meshfuse
