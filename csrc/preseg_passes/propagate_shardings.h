// propagate_shardings: gives every tensor without a mesh the sharding that its neighbours' suggest.
//
//   T0 mesh S0(x), T1 = add(T0, 1)      ->      T1 mesh S0(x)
//
// A tensor with a mesh is pinned exactly as written (but a binding of a reduced dim, which no rank has, is dropped), an output in an
// input's memory as that input is. A fusion input without a mesh is on every rank and stays so. Axes travel forward and backward to
// a fixpoint: an axis may be added to a free tensor, never moved or removed.
// - Forward comes first. Where operands of an elementwise op want different shardings of its result, that one is taken for which the
//   operands receive the fewest bytes. Ties: of linear and matmul the larger of weight and activations, so that the smaller is
//   gathered if both want one axis; then the first operand.
// - Backward, readers through which elements pass come before those that reduce, and those before what stretches. Where readers of
//   one kind want different shardings, that one is taken for which all around the tensor receives the fewest bytes. Ties: the first.
// A remark says what was chosen and why; the context records for every placed tensor where its axes come from. A tensor that
// no axis reached is replicated on its neighbours' mesh, a tensor without operands on that of its uses.
// Sizes of axes may be symbols: axes are taken to divide what they cut (axis_facts.h), costs are those at the meshes' hints, and the
// result holds for every size. Where some tensor awaits its sizes, one that no axis reached is left to be placed when they are known.
// The tensors that had a mesh are marked as pinned, so that later passes know what is not theirs to move.
// Before: check_annotations. After: if any tensor has a mesh, all but such inputs have one that they can reach. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool propagateShardings(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
