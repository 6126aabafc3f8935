// A dim in parts of given sizes, one after the other: {2, 3, 4, 5} are 14 elements.
//
// Digits index the padded dim, in which every part is as long as the longest: 4 parts of 5 places are 20 places, and 14 of them exist.
#pragma once

#include <span>
#include <string>

#include "base/ranges.h"
#include "digits/int_expr.h"

namespace meshfuse {

// [2, 3, 4, 5]
[[nodiscard]] inline std::string toString(std::span<const IntExpr> sizes) {
  return "[" + joined(sizes, ", ", &IntExpr::toString) + "]";
}
// The largest size; 0 without parts.
[[nodiscard]] IntExpr largestOf(std::span<const IntExpr> sizes);
// Whether the parts are blocks: all sizes are equal, except that the last ones are smaller or empty.
[[nodiscard]] bool areBlocks(std::span<const IntExpr> sizes);

}  // namespace meshfuse
