// propagate_shardings: gives every tensor without a mesh the sharding that its neighbours' suggest.
//
//   T0 mesh S0(x), T1 = add(T0, 1)      ->      T1 mesh S0(x)
//
// A tensor with a mesh is pinned exactly as written. Axes travel forward and backward to a fixpoint: an axis may be added to a
// free tensor, never moved or removed; of linear and matmul the larger of weight and activations comes first, so that the smaller
// is gathered if both want one axis; forward before backward, ties by id. A fusion input without a mesh is on every rank and stays so. What is still free in the end is replicated
// on its neighbours' mesh, tensors without operands by their uses.
// Before: check_annotations. After: if any tensor has a mesh, all but such inputs have one that they can reach. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool propagateShardings(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
