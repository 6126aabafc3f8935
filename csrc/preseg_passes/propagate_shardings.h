// propagate_shardings: gives every tensor without a mesh the sharding that its neighbours' suggest.
//
//   T0 mesh S0(x), T1 = add(T0, 1)      ->      T1 mesh S0(x)
//
// A tensor with a mesh is pinned exactly as written, an output in an input's memory as that input is. Axes travel forward and
// backward to a fixpoint: an axis may be added to a free tensor, never moved or removed. Where operands of an elementwise op want
// different shardings of its result, that one is taken for which the operands receive the fewest bytes, and a remark says so; of
// linear and matmul the larger of weight and activations comes first, so that the smaller is gathered if both want one axis;
// then the first operand; forward before backward, ties by id. A fusion input without a mesh is on every rank and stays so. What
// is still free in the end is replicated on its neighbours' mesh, tensors without operands by their uses.
// Before: check_annotations. After: if any tensor has a mesh, all but such inputs have one that they can reach. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool propagateShardings(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
