// The local form of one op: the same op on local shapes, with global positions taken from coordinates where it has any.
#pragma once

#include <vector>

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"
#include "preseg_passes/local_layout.h"

namespace meshfuse {

// What the local form of an op is made of.
struct LocalOp {
  const Expr* expr;                // of the global fusion; no Redistribute
  const TensorView* result;        // its tensor output
  ShardState state;                // of the result
  std::vector<Val*> operands;      // local, cut to what this op needs; scalars copied
  std::vector<ShardState> needed;  // of the tensor operands, at the same positions
  LocalRank at;                    // whose program this is
};

// A slice, a pad or a concatenation that fetches what it needs from other ranks.
struct WindowOp {
  const Expr* expr;
  std::vector<TensorView*> operands;  // local; null where this rank holds nothing
  Val* fill;                          // of a pad
  LocalRank at;
};

// The result, null if it is on other ranks only; `communications` is counted up.
[[nodiscard]] TensorView* emitWindow(Fusion& local, const WindowOp& op, int64_t& communications);

// The result, in the local fusion.
[[nodiscard]] TensorView* emitLocalOp(Fusion& local, const LocalOp& op);

}  // namespace meshfuse
