// What sizes have to be so that a fusion runs: equalities between extents that are symbols. Nothing here is assumed: where one of them
// does not hold, the fusion is refused.
//
//   T2 = add(T0[i0], T1[i1])                          i1 == i0: dims that an op reads alike are of one extent
//   T0[i0], dim 0 bound whole to an axis x of 4       i0 == 4: the loop of an axis has its size
//
// A dim that awaits its size may be one element that stretches, and is equal to nothing.
#pragma once

#include <utility>
#include <vector>

#include "digits/prover.h"

namespace meshfuse {

class Expr;
class Fusion;
class IterDomain;

// Of all that the outputs of the fusion need. Empty, without a look at the fusion's exprs, if all its extents are constants.
[[nodiscard]] Prover factsOfSizes(const Fusion& fusion);
// The same for questions on one expr, whether or not an output needs it; empty if the extents of its own tensors are constants.
[[nodiscard]] Prover factsOfSizes(const Expr& expr);
// The same by cases, together all programs that run: an axis without a size that owns a whole dim is as long as the dim, or has one
// device and says nothing of it. What holds in each case holds. One case where there are no such axes.
[[nodiscard]] std::vector<Prover> casesOfSizes(const Expr& expr);

// `facts` and what a reshape adds to them: both of its shapes have one number of elements. Only for questions on the reshape itself,
// since it says nothing where there are no elements.
[[nodiscard]] Prover withReshape(const Expr& expr, const Prover& facts);

// Which dims of two shapes of the same elements are the same, by position, as far as their extents are known to be equal from the outside
// and from the inside; those in between are regrouped, dims of one element left out.
struct ReshapedDims {
  std::vector<std::pair<size_t, size_t>> same;
  std::vector<size_t> from;
  std::vector<size_t> to;
};
[[nodiscard]] ReshapedDims reshapedDims(const std::vector<IterDomain*>& from, const std::vector<IterDomain*>& to,
                                        const Prover& prover);

}  // namespace meshfuse
