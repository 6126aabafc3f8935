// Halo exchange: the elements that ranks receive for a slice, a pad or a concatenation along a sharded dim, when the parts of the result
// do not match the parts of the operand.
//
//   mesh {x: 4}, T0[8] S0(x), T1 = slice(T0, 1:8), S0(x)     each rank receives one element from its right neighbour
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "digits/int_expr.h"
#include "ir/expr.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class Fusion;

// The exchange of one operand.
struct HaloExchange {
  DeviceMesh to;                      // the mesh of the result
  std::vector<Part> needs;            // by position in that mesh: the elements of the operand that the device reads
  std::vector<PartMessage> messages;  // parts of the operand
  std::vector<PartMessage> kept;      // parts that a device already holds: from == to
  double cost = 0;                    // in the units of a plan's cost
  int64_t received = 0;               // elements that the busiest device receives
  int64_t total = 0;                  // elements that all devices receive
  // Not empty if all ranks along these mesh axes need the same part. The rank at position `root` holds it and broadcasts it.
  std::vector<int64_t> broadcastAxes;
  IntExpr root = 0;
  HaloStep step;
};

// True for Slice, Pad, Cat, and for an IndexSelect of one row whose index is known at run time (row_broadcast.h).
[[nodiscard]] bool isWindowOp(const Expr* expr);
// True for a window op with a planned halo exchange. Its edges may communicate.
[[nodiscard]] bool exchangesHalo(const Expr* expr);
// The elements of the operand that a device needs to compute its part of the result.
[[nodiscard]] Part windowNeeds(const Expr* expr, int64_t operand, const ShardState& result, int64_t device);
// The elements of an operand of these sizes that a Slice or Pad with these attributes reads for a part of its result.
[[nodiscard]] Part windowReads(ExprKind kind, const ExprAttributes& attributes, const std::vector<int64_t>& sizes,
                               const Part& made);
// The exchange of one operand, with the cost model of the fusion's planner settings. Empty if sizes or offsets are not constant, or if
// the operand is a partial sum. For an IndexSelect `messages` is empty: the sender is known only at run time.
[[nodiscard]] std::optional<HaloExchange> haloExchange(const Expr* expr, int64_t operand);

// The halo exchanges of a planned fusion. Two exchanges of one tensor to one mesh are merged if that costs no more: each rank then
// receives all missing elements in one transfer.
//
//   mesh {x: 4}, T0[16] S0(x), slices 0:14, 1:15 and 2:16, S0(x)     the exchange of the second has two elements; the third reuses it
class HaloExchanges {
 public:
  explicit HaloExchanges(const Fusion& fusion);

  struct Place {
    size_t number = 0;  // index of the exchange
    HaloStep step;
  };
  // Null if the operand is not a tensor, or if haloExchange() is empty for it.
  [[nodiscard]] const Place* find(const Expr* expr, int64_t operand) const;
  [[nodiscard]] const HaloExchange& exchange(const Place& place) const { return exchanges_[place.number]; }
  // Forgets the parts and messages of all devices. Each exchange keeps its step and the numbers of elements received.
  void keepAmounts();
  // One step for each tensor operand for which find() is not null.
  [[nodiscard]] std::vector<HaloStep> steps(const Expr* expr) const;

 private:
  std::vector<HaloExchange> exchanges_;
  std::map<std::pair<int64_t, int64_t>, Place> places_;  // by ids of expr, and operand
};

}  // namespace meshfuse
