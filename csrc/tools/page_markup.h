// Pieces of markup that all sections of a page are made of.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshfuse {

// For text and for attributes in double quotes.
[[nodiscard]] std::string escaped(std::string_view text);
// 0 B, 1.5 KiB; and with the exact number where the pointer rests.
[[nodiscard]] std::string shortBytes(double bytes);
[[nodiscard]] std::string bytesMarkup(int64_t bytes);
// 12 ns, 3.4 us, 5.6 ms
[[nodiscard]] std::string shortTime(int64_t nanoseconds);
// 0 to 3, 5
[[nodiscard]] std::string rankList(std::span<const int64_t> ranks);

// Whose tensors the names in a text are.
enum class TensorScope : uint8_t { Planned, OfRank };
// The text, escaped, each tensor's name a mark that lights up with its like; those of the planned program lead to their places.
[[nodiscard]] std::string withTensors(std::string_view text, TensorScope scope);
// One line of a program: the same, its op and its type told apart.
[[nodiscard]] std::string programLine(std::string_view line, TensorScope scope);

[[nodiscard]] std::string section(std::string_view id, std::string_view title, std::string_view lead,
                                  std::string_view body);

}  // namespace meshfuse
