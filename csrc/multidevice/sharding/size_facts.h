// Equalities between symbolic extents that hold whenever a fusion runs. They are not assumptions: a call for which one is false is refused.
//
//   T2 = add(T0[i0], T1[i1])                          i1 == i0: dims that an op reads at the same index have one extent
//   T0[i0], dim 0 bound whole to an axis x of 4       i0 == 4: the loop that is bound to an axis has the size of the axis
//
// A symbolic dim may have one element that stretches, so it gives no equality.
#pragma once

#include <utility>
#include <vector>

#include "digits/prover.h"

namespace meshfuse {

class Expr;
class Fusion;
class IterDomain;

// True if all extents of the tensors that an expr reads and writes are constants: questions on it need no facts.
[[nodiscard]] bool hasConstantExtents(const Expr& expr);
// The facts of all exprs that the outputs of the fusion need. If all extents are constants, the result is empty and the exprs are not read.
// Here and below: UserError that names the tensors and both sizes if no sizes fit the program.
[[nodiscard]] Prover factsOfSizes(const Fusion& fusion);
// The same for questions on one expr, whether or not an output needs it; empty if hasConstantExtents(expr).
[[nodiscard]] Prover factsOfSizes(const Expr& expr);
// The same as a list of cases that together cover all programs that run. If an axis of unknown size owns a whole dim, either the axis is as
// long as the dim, or it has one device and gives no equality. A relation that holds in each case holds. Without such axes there is one
// case.
[[nodiscard]] std::vector<Prover> casesOfSizes(const Expr& expr);

// `facts` and the equality of a reshape: both of its shapes have the same number of elements. Use it only for questions about the reshape
// itself, because the equality determines nothing if there are no elements.
[[nodiscard]] Prover withReshape(const Expr& expr, const Prover& facts);

// The dims that a reshape keeps (`same`, pairs of positions in the two shapes): the outermost and the innermost dims, as far as their
// extents are known to be equal. The dims in between (`from`, `to`) are regrouped. Dims of one element are left out.
struct ReshapedDims {
  std::vector<std::pair<int64_t, int64_t>> same;
  std::vector<int64_t> from;
  std::vector<int64_t> to;
};
[[nodiscard]] ReshapedDims reshapedDims(const std::vector<IterDomain*>& from, const std::vector<IterDomain*>& to,
                                        const Prover& prover);

}  // namespace meshfuse
