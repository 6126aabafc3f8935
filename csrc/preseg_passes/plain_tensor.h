// Tensors with which a pass replaces other tensors.
#pragma once

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// A tensor with the stored dims and the memory order of `tv`, without reductions and root, sharded as `state`. No stored dim may be partial.
[[nodiscard]] TensorView* plainTensor(const TensorView* tv, DataType dtype, const ShardState& state);
// The result of a new op, like plainTensor(like, dtype, state).
[[nodiscard]] TensorView* plainOp(ExprKind kind, const std::vector<Val*>& operands, const TensorView* like,
                                  DataType dtype, const ShardState& state, const ExprAttributes& attributes = {});
// The result of a new op with these dims, sharded as `state`.
[[nodiscard]] TensorView* placedOp(ExprKind kind, const std::vector<Val*>& operands, DataType dtype,
                                   const std::vector<Dim>& dims, const ShardState& state,
                                   const ExprAttributes& attributes = {});
// A new redistribution of `from`.
[[nodiscard]] TensorView* redistributed(TensorView* from, const ShardState& state);
// The combination of a partial sum: its partial dim is a reduction dim of the result.
[[nodiscard]] TensorView* combine(TensorView* partial, const ShardState& state);
// Replaces `was` by `now`: it gets the readers, the number, the memory order and the user-sharded flag of `was`.
void takePlace(TensorView* was, TensorView* now);

// True for a reduction of a partial sum over only the dim of its contributions: the form of `combine` that a user writes.
[[nodiscard]] bool combinesPartials(const Expr* expr);

}  // namespace meshfuse
