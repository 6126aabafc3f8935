// The attributes of an Expr in the text form: `dim=1`, `flags=[t, f]`, `starts=[0, i0]`, ...
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ranges.h"
#include "ir/expr.h"

namespace meshfuse {

[[nodiscard]] std::string flagsText(const std::vector<bool>& flags);  // [t, f]
// [a, b], with the text of each element.
template <std::ranges::input_range Range, class Text>
[[nodiscard]] std::string listText(const Range& values, const Text& text) {
  return "[" + joined(values, ", ", std::cref(text)) + "]";
}
template <std::ranges::input_range Range>
[[nodiscard]] std::string listText(const Range& numbers) {  // [1, 0]
  return listText(numbers, [](auto number) { return std::to_string(number); });
}

// The attributes that the kind reads, separated by commas; lists only if not empty.
// mesh: the number by which the text names a mesh.
[[nodiscard]] std::string attributesText(const Expr& expr, const std::function<std::string(const IntExpr&)>& text,
                                         const std::function<int64_t(const DeviceMesh&)>& mesh);

// Reads the value of attribute `key` of an op of the given kind into `attributes`; UserError if the kind has no such attribute or
// the value does not parse. `read` reads integer expressions; `meshes` are those defined above.
void parseAttribute(ExprKind kind, std::string_view key, std::string_view value,
                    const std::function<IntExpr(std::string_view)>& read, std::span<const DeviceMesh> meshes,
                    ExprAttributes& attributes);

// UserError if there is none of this name.
[[nodiscard]] ReduceOp parseReduceOp(std::string_view text);

// The parts of `text` between commas outside of brackets, trimmed; none for a blank text.
[[nodiscard]] std::vector<std::string_view> splitAtCommas(std::string_view text);
// The parts before and after the first `separator`, trimmed; the second is empty if there is none.
[[nodiscard]] std::pair<std::string_view, std::string_view> splitAt(char separator, std::string_view text);
[[nodiscard]] int64_t nesting(char c);  // 1 for an opening bracket, -1 for a closing one, else 0
[[nodiscard]] std::string_view trimmed(std::string_view text);
// The parts of `[a, b]`; UserError without the brackets.
[[nodiscard]] std::vector<std::string_view> parseList(std::string_view text);
// The same, each read by `read`.
template <class Read>
[[nodiscard]] auto parseEach(std::string_view text, const Read& read) {
  return mapped(parseList(text), std::cref(read));
}
// The number that is the whole text.
template <class Number>
[[nodiscard]] std::optional<Number> numberIn(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}
[[nodiscard]] int64_t parseInteger(std::string_view text);
[[nodiscard]] std::vector<int64_t> parseIntegers(std::string_view list);
[[nodiscard]] std::vector<bool> parseFlags(std::string_view list);

}  // namespace meshfuse
