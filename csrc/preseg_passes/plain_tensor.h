// Tensors that a pass puts in place of others.
#pragma once

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// A tensor of the stored dims of `tv` without reductions and root, with its memory order, placed at `state`. The stored dims do
// not hold a partial one.
[[nodiscard]] TensorView* plainTensor(const TensorView* tv, DataType dtype, const ShardState& state);
// The same with the dims given.
[[nodiscard]] TensorView* placedTensor(Fusion& fusion, DataType dtype, const std::vector<Dim>& dims,
                                       const ShardState& state);
// to = redistribute(from).
Expr* redistribute(TensorView* from, TensorView* to);
// The combination of a partial sum: its partial dim is a reduction dim of the result.
[[nodiscard]] TensorView* combine(TensorView* partial, const ShardState& state);
// `now` stands where `was` stood: the same readers, number, memory order and pin.
void takePlace(TensorView* was, TensorView* now);

// A reduction of partial results over the dim that counts them, and no other: `combine` in the words of a user.
[[nodiscard]] bool combinesPartials(const Expr* expr);

}  // namespace meshfuse
