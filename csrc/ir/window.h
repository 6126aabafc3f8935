// How the logical dims of a slice and of a pad come of their root dims.
//
//   slice   a dim taken whole passes; else a Resize to the window, of whole steps, and where the step is not 1 a Split by the step:
//           only its outer part is a logical dim (the first element of each step)
//   pad     a dim that does not change passes; else a Resize
//
// A dim whose extent becomes the constant 1 is a broadcast dim, whatever the step. One that may turn out to be 1 is symbolic until
// the sizes are known: concretize makes it a broadcast or an iteration dim.
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
