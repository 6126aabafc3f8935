// Costs of redistributions, for the rewrites that choose their places.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "multidevice/sharding/plan_memo.h"
#include "tensor/dtype.h"

namespace meshfuse {

class Expr;
class Fusion;
class TensorView;

struct ReshardCost {
  int64_t bytes = 0;  // received by the busiest rank
  int64_t calls = 0;
  int64_t held = 0;  // bytes that a rank computes and receives, each tensor counted once

  ReshardCost& operator+=(const ReshardCost& more);
  ReshardCost& operator-=(const ReshardCost& less);
};

// True if costs of the tensor are known: its extents and the sizes of mesh axes are constants, or have values in `plans`.
[[nodiscard]] bool hasKnownSizes(const TensorView* tv, const PlanMemo& plans);
// The cost of moving a tensor like `tv` from one state to another on one mesh; `held` is 0.
[[nodiscard]] ReshardCost costOf(PlanMemo& plans, const ShardState& from, const ShardState& to, const TensorView* tv);
// The cost of a Redistribute, without the memory of its result.
[[nodiscard]] ReshardCost costOf(PlanMemo& plans, const Expr* redistribute);

// Bytes that a rank holds of a tensor, for the sizes of `plans`; an upper bound for uneven parts.
[[nodiscard]] int64_t localBytes(const PlanMemo& plans, const ShardState& state, DataType type);

// True if every axis owns digits with its whole coordinate or none, so that a tensor can have this state. The state that an op needs may
// have parts that several ranks of an axis share.
[[nodiscard]] bool usesWholeAxes(const ShardState& state);

// True if a pass may change the tensor's sharding: it is not user-sharded, not an input and not an output.
[[nodiscard]] bool isMovable(const TensorView* tv);
// True for a Redistribute that these rewrites handle: operand and result are on one mesh.
[[nodiscard]] bool isOneMeshReshard(const Expr* expr);
// True for one of them that adds up the contributions to a sum.
[[nodiscard]] bool addsContributions(const Expr* expr);
// The ids of the exprs that a pass is to visit: a visit may remove exprs that follow.
[[nodiscard]] std::vector<int64_t> idsOf(const Fusion& fusion, const std::function<bool(const Expr*)>& among);
// The existing redistribution of `tv` to `state`, or nullptr.
[[nodiscard]] TensorView* knownReshard(const TensorView* tv, const ShardState& state);

}  // namespace meshfuse
