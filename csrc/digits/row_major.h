// Index arithmetic of row-major arrays.
#pragma once

#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

// Position of `index` in row-major order of `extents`.
[[nodiscard]] IntExpr linearize(const std::vector<IntExpr>& index, const std::vector<IntExpr>& extents);
// The index whose row-major position is `position`: the inverse of linearize.
[[nodiscard]] std::vector<IntExpr> delinearize(const IntExpr& position, const std::vector<IntExpr>& extents);
// The element at `index` of an array of shape `from` after a reshape to `to`: its index in the result. Dims are regrouped as
// little as possible, so a dim that only moves keeps its index: [a, b, c] -> [a, b*c] leaves a alone.
[[nodiscard]] std::vector<IntExpr> reshapeIndex(const std::vector<IntExpr>& index, const std::vector<IntExpr>& from,
                                                const std::vector<IntExpr>& to);
// Strides of a contiguous array.
[[nodiscard]] std::vector<IntExpr> rowMajorStrides(const std::vector<IntExpr>& extents);

}  // namespace meshfuse
