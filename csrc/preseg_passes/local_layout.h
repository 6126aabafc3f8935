// Moving digits inside one rank: slices at coordinates, packs and unpacks.
#pragma once

#include <vector>

#include "ir/fusion.h"
#include "multidevice/sharding/local_indices.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

// The rank's coordinate on an axis of a mesh: a symbol of 0 .. size - 1.
[[nodiscard]] IntExpr coordinate(const DeviceMesh& mesh, int axis);
// The rank's coordinate on an atom of a refinement of `mesh`.
[[nodiscard]] IntExpr coordinate(const DeviceMesh& mesh, const AtomOrigin& origin, int64_t size);

// What a rank holds at a state of a plan with even parts.
[[nodiscard]] std::vector<int64_t> localShape(const PlanState& state);

// A dim of a local tensor. As everywhere, a stored dim of one element is a broadcast dim: that it is a part of a longer one has
// no meaning on a rank.
[[nodiscard]] Dim localDim(const IntExpr& extent, IterType globalType);
// Zero, or false, of a type.
[[nodiscard]] Val* zeroOf(Fusion& local, DataType dtype);

// Ops on local tensors; each returns its operand where nothing changes.
[[nodiscard]] TensorView* localReshape(TensorView* in, const std::vector<int64_t>& shape);
[[nodiscard]] TensorView* localPermute(TensorView* in, const std::vector<int>& order);
[[nodiscard]] TensorView* localSlice(TensorView* in, const std::vector<IntExpr>& starts,
                                     const std::vector<IntExpr>& stops, const std::vector<IntExpr>& steps);

// `in` read as [pieces..], which its dims regroup; the pieces in `order`, regrouped to `shape`. At most one permute.
[[nodiscard]] TensorView* rearrange(TensorView* in, const std::vector<int64_t>& pieces, const std::vector<int>& order,
                                    const std::vector<int64_t>& shape);

// The part of `in` (a local tensor at `before`) that is left at `after`, which owns more: coordinates[atom] are index
// expressions.
[[nodiscard]] TensorView* sliceOwned(TensorView* in, const PlanState& before, const PlanState& after,
                                     const std::vector<IntExpr>& coordinates);

// The elements at these positions of each dim: a slice, or slices put together.
[[nodiscard]] TensorView* takeBlock(TensorView* in, const IndexBlock& positions);

// Extents of what `rank` holds. Where parts are uneven they are those of this rank, else the same on all.
[[nodiscard]] std::vector<IntExpr> localExtents(const ShardState& state, int64_t rank);

// All ops of one step of a plan on the local tensor, of which the whole has the given extents; `reduce` combines partial sums. A step
// in which ranks hold parts of different sizes is one of the program of `rank`, all others are the same on every rank.
[[nodiscard]] TensorView* emitStep(TensorView* in, const CommStep& step, ReduceOp reduce,
                                   const std::vector<int64_t>& extents, int64_t rank);

}  // namespace meshfuse
