// The local form of one op: the same op on local shapes, with global positions taken from coordinates where it has any.
#pragma once

#include <vector>

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// What the local form of an op is made of.
struct LocalOp {
  const Expr* expr;                // of the global fusion; no Redistribute
  const TensorView* result;        // its tensor output
  ShardState state;                // of the result
  std::vector<Val*> operands;      // local, cut to what this op needs; scalars copied
  std::vector<ShardState> needed;  // of the tensor operands, at the same positions
  int64_t rank = 0;                // whose program this is, where parts are uneven
};

// The result, in the local fusion.
[[nodiscard]] TensorView* emitLocalOp(Fusion& local, const LocalOp& op);

}  // namespace meshfuse
