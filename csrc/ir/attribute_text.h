// The attributes of an Expr in the text form: `dim=1`, `flags=[t, f]`, `starts=[0, i0]`, ...
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.h"

namespace meshfuse {

[[nodiscard]] std::string flagsText(const std::vector<bool>& flags);  // [t, f]
[[nodiscard]] std::string listText(const std::vector<int>& values);   // [1, 0]
// [a, b], with the text of each element.
template <class T, class Text>
[[nodiscard]] std::string listText(const std::vector<T>& values, const Text& text) {
  std::string list;
  for (const T& value : values) {
    list += (list.empty() ? "" : ", ") + text(value);
  }
  return "[" + list + "]";
}

// The attributes that the kind reads, separated by commas; lists only if not empty.
// mesh: the number by which the text names a mesh.
[[nodiscard]] std::string attributesText(const Expr& expr, const std::function<std::string(const IntExpr&)>& text,
                                         const std::function<int(const DeviceMesh&)>& mesh);

// Reads the value of attribute `key` of an op of the given kind into `attributes`; UserError if the kind has no such attribute or
// the value does not parse. `read` reads integer expressions; `meshes` are those defined above.
void parseAttribute(ExprKind kind, std::string_view key, std::string_view value,
                    const std::function<IntExpr(std::string_view)>& read, std::span<const DeviceMesh> meshes,
                    ExprAttributes& attributes);

// UserError if there is none of this name.
[[nodiscard]] ReduceOp parseReduceOp(std::string_view text);

// The parts of `text` between commas outside of brackets, trimmed; none for a blank text.
[[nodiscard]] std::vector<std::string_view> splitAtCommas(std::string_view text);
[[nodiscard]] std::string_view trimmed(std::string_view text);
// The parts of `[a, b]`; UserError without the brackets.
[[nodiscard]] std::vector<std::string_view> parseList(std::string_view text);
// The same, each read by `read`.
template <class Read>
[[nodiscard]] auto parseEach(std::string_view text, const Read& read) {
  std::vector<decltype(read(text))> values;
  for (std::string_view part : parseList(text)) {
    values.push_back(read(part));
  }
  return values;
}
[[nodiscard]] int64_t parseInteger(std::string_view text);
[[nodiscard]] std::vector<int> parseIntegers(std::string_view list);
[[nodiscard]] std::vector<bool> parseFlags(std::string_view list);

}  // namespace meshfuse
