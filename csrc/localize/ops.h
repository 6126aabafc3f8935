// The local form of one op: the same op on local shapes, with global positions taken from coordinates where it has any.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ir/fusion.h"
#include "localize/layout.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/shard_state.h"

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

// A slice, a pad, a concatenation, or one row by a run-time index, with a halo exchange.
struct WindowOp {
  const Expr* expr;
  std::vector<TensorView*> operands;  // local; null where this rank holds nothing
  Val* fill;                          // of a pad
  LocalRank at;
};

// Emits all windows of a program, in its order.
class WindowEmitter {
 public:
  WindowEmitter(const Fusion& global, Fusion& local) : windows_(global), local_(local) {}

  // The result, null if it is on other ranks only; `communications` is counted up.
  [[nodiscard]] TensorView* emit(const WindowOp& op, int64_t& communications);

 private:
  const HaloExchanges windows_;
  Fusion& local_;
  std::map<size_t, TensorView*> arrived_;  // by number of the exchange; null where it brings nothing
};

// The row that an IndexSelect takes by its `index` of one element, where this rank has it; some row elsewhere.
[[nodiscard]] TensorView* ownRow(Fusion& local, const Expr* select, TensorView* table, TensorView* index,
                                 const LocalRank& at);

// The result, in the local fusion.
[[nodiscard]] TensorView* emitLocalOp(Fusion& local, const LocalOp& op);

}  // namespace meshfuse
