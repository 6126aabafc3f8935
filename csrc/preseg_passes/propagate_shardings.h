// propagate_shardings: gives every tensor without a mesh a sharding that follows from the shardings of its neighbours.
//
//   T0 mesh S0(x), T1 = add(T0, 1)      ->      T1 mesh S0(x)
//
// A tensor with a mesh is user-sharded and keeps exactly its sharding, except that a binding of a reduced dim, which no rank stores, is
// dropped. An output that is aliased to an input gets the sharding of the input. A fusion input without a mesh stays whole on every rank.
// Axes propagate forward and backward to a fixpoint: an axis may be added to a tensor that is not user-sharded, never moved or removed.
// - Forward comes first. If the operands of an elementwise op suggest different shardings of its result, the one for which the operands
//   receive the fewest bytes is chosen. Ties: for linear and matmul the suggestion of the larger of weight and activations, so that the
//   smaller one is gathered if both use one axis; then that of the first operand. Along the dim of a scan, axes propagate if split_scans
//   takes the scan, unless the result and its readers receive fewer bytes if it is whole.
// - Backward, elementwise and shape ops come first, then ops that reduce, then ops that stretch. If readers of one kind suggest different
//   shardings, the one for which all neighbours of the tensor receive the fewest bytes is chosen. Ties: the first.
// A remark states the choice and its reason; the context records for every sharded tensor the origin of its axes. A tensor that no axis
// reaches is replicated on the mesh of its neighbours; a tensor without operands on the mesh of its uses.
// Sizes of axes may be symbols: the pass assumes that axes divide the dims that they cut (axis_facts.h), compares costs at the hints of the
// meshes, and the result holds for every size. If a fusion has symbolic dims, a tensor that no axis reaches gets its mesh after sizes are
// known. The pass marks the tensors that had a mesh (isUserSharded, `pinned` in the text); later passes do not change their sharding.
// Runs after check_annotations. On exit, if any tensor has a mesh, every tensor that a mesh can reach has one, except inputs. Idempotent.
#pragma once

#include <vector>

#include "multidevice/mesh/device_mesh.h"

namespace meshfuse {

class Fusion;
class PassContext;
class TensorView;

bool propagateShardings(Fusion& fusion, PassContext& context);

struct PropagationScope {
  // The tensors whose sharding may change, inputs included; they keep the axes that they have. Empty: all results without a mesh.
  std::vector<TensorView*> tensors = {};
  std::vector<ParallelType> axes = {};  // the mesh axes to propagate, each whole; empty: all
};

// The same for a user who shards by hand, in steps: only these tensors take axes, and only these axes. Afterwards a tensor that took one is
// user-sharded, as if its sharding had been written; so is every tensor of `tensors` that a mesh reaches. True if a tensor has changed.
//
//   propagateShardings(fusion, {.tensors = {q, k, v}, .axes = {ParallelType::DIDx}});
//
// The outputs must have been added before. UserError for a tensor that reaches no output, and for an axis that is no whole mesh axis.
bool propagateShardings(Fusion& fusion, const PropagationScope& scope);

}  // namespace meshfuse
