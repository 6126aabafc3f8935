// The local form of one op: the same op on local shapes. If the op uses global positions, they are computed from the rank's coordinates.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ir/fusion.h"
#include "localize/layout.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

struct OperandDim;

// The inputs for the local form of an op.
struct LocalOp {
  const Expr* expr;                // of the global fusion; not a Redistribute
  const TensorView* result;        // its tensor output
  ShardState state;                // of the result
  std::vector<Val*> operands;      // local, cut to what this op needs; scalars copied
  std::vector<ShardState> needed;  // of the tensor operands, at the same positions
  LocalRank at;                    // the rank of the program
};

// A slice, a pad, a concatenation, or one row by a run-time index, with a halo exchange.
struct WindowOp {
  const Expr* expr;
  std::vector<TensorView*> operands;  // local; null if this rank holds no part
  Val* fill;                          // of a pad
  LocalRank at;
};

// Emits all windows of a program, in its order.
class WindowEmitter {
 public:
  WindowEmitter(const Fusion& global, Fusion& local) : halos_(global), local_(local) {}

  // The result, null if it is on other ranks only. Adds the number of emitted communications to `communications`.
  [[nodiscard]] TensorView* emit(const WindowOp& op, int64_t& communications);

 private:
  const HaloExchanges halos_;
  Fusion& local_;
  std::map<int64_t, TensorView*> arrived_;  // by number of the exchange; null if this rank receives nothing
};

// The row that an IndexSelect with an `index` of one element takes, if this rank holds it; on other ranks an arbitrary row.
[[nodiscard]] TensorView* ownRow(Fusion& local, const Expr* select, TensorView* table, TensorView* index,
                                 const LocalRank& at);

// A pad of `in`, the elements `read` of its operand, to the part `made` of the result.
[[nodiscard]] TensorView* padPart(TensorView* in, Val* fill, const std::vector<OperandDim>& dims, const Part& made,
                                  const Part& read);

// The result, in the local fusion.
[[nodiscard]] TensorView* emitLocalOp(Fusion& local, const LocalOp& op);

}  // namespace meshfuse
