// Derives the logical dims of a reshape from its root dims by the smallest groups of splits and merges.
//
// Both shapes are walked from their outermost dims. Equal extents pass through; a 1 only in the root is dropped, a 1 only in the result
// is a new broadcast dim. Otherwise the shorter side grows until both products are equal, and the group is connected: the current root
// dim is split by the next extent if that divides it, else merged with the next root dim.
//
//   [2, 3, 4] -> [6, 4]     merge 2, 3; 4 passes
//   [4, 6]    -> [8, 3]     merge 4, 6 to 24; split 24 into 8, 3
//   [4, i0]   -> [i0, 4]    merge to 4*i0; split into i0, 4
//
// A shape with a constant 0 has no elements to connect: all dims are new unless the shapes are equal.
#pragma once

#include <span>
#include <vector>

#include "digits/int_expr.h"
#include "ir/fusion.h"

namespace meshfuse {

// True if connectReshape can connect the shapes: the normal form proves for each group that the products agree.
[[nodiscard]] bool canConnectReshape(std::span<const IntExpr> from, std::span<const IntExpr> to);

// The logical dims. UserError with both shapes unless canConnectReshape.
[[nodiscard]] std::vector<IterDomain*> connectReshape(Fusion& fusion, const std::vector<IterDomain*>& root,
                                                      std::span<const IntExpr> extents);

}  // namespace meshfuse
