// What redistributions cost, for the rewrites that choose where they stand.
#pragma once

#include <cstdint>

#include "multidevice/sharding/plan_memo.h"
#include "tensor/dtype.h"

namespace meshfuse {

class Expr;
class Fusion;
class TensorView;

struct ReshardCost {
  int64_t bytes = 0;  // received by the busiest rank
  int64_t calls = 0;
  int64_t held = 0;  // bytes of what a rank computes and receives, each tensor counted once

  ReshardCost& operator+=(const ReshardCost& more);
  ReshardCost& operator-=(const ReshardCost& less);
};

// Of a tensor such as `tv` brought from one state to another on one mesh; nothing is held.
[[nodiscard]] ReshardCost costOf(PlanMemo& plans, const ShardState& from, const ShardState& to, const TensorView* tv);
// Of a Redistribute as it stands, without what it gives.
[[nodiscard]] ReshardCost costOf(PlanMemo& plans, const Expr* redistribute);
// Of all tensors with a mesh and all Redistributes of a fusion of constant sizes.
[[nodiscard]] ReshardCost costOf(PlanMemo& plans, const Fusion& fusion);

// Bytes that a rank holds of a tensor; where parts are uneven not less than that.
[[nodiscard]] int64_t localBytes(const ShardState& state, DataType type);

// Axes own digits with their whole coordinate or not at all: a tensor can have this state. What an op needs may be in parts that
// several ranks of an axis share.
[[nodiscard]] bool usesWholeAxes(const ShardState& state);

// A tensor that only passes placed, and nobody outside sees: its sharding may be another.
[[nodiscard]] bool isMovable(const TensorView* tv);
// A Redistribute that these rewrites understand: both ends are placed, on one mesh.
[[nodiscard]] bool isOneMeshReshard(const Expr* expr);
// The redistribution of `tv` to `state` that there is, or nullptr.
[[nodiscard]] TensorView* knownReshard(const TensorView* tv, const ShardState& state);

}  // namespace meshfuse
