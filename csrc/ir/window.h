// Derives the logical dims of a slice or a pad from its root dims.
//
//   slice   a dim that is taken whole is unchanged. Otherwise a Resize to a window of whole steps; if the step is not 1, also a Split by
//           the step, whose outer part (the first element of each step) is the logical dim
//   pad     a dim without padding is unchanged; otherwise a Resize
//
// A dim whose extent becomes the constant 1 is a broadcast dim, whatever the step. A dim whose extent may be 1 is symbolic until
// the sizes are known; then concretize makes it a broadcast or an iteration dim.
#pragma once

#include <span>
#include <vector>

#include "digits/int_expr.h"
#include "ir/fusion.h"

namespace meshfuse {

[[nodiscard]] std::vector<IterDomain*> connectSlice(Fusion& fusion, const std::vector<IterDomain*>& root,
                                                    std::span<const IntExpr> starts, std::span<const IntExpr> stops,
                                                    std::span<const IntExpr> steps);
[[nodiscard]] std::vector<IterDomain*> connectPad(Fusion& fusion, const std::vector<IterDomain*>& root,
                                                  std::span<const IntExpr> left, std::span<const IntExpr> right);

}  // namespace meshfuse
