// Halo exchange: the elements that ranks receive for a slice, a pad, a concatenation or an index_select of one row along a sharded dim,
// when the parts of the result do not match the parts of the operand.
//
// mesh {x: 4}, T0[8] S0(x), T1 = slice(T0, 1:8), S0(x)     each rank but the last receives one element from its right neighbour
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
// True for a window op with a halo exchange. Its edges may communicate.
[[nodiscard]] bool exchangesHalo(const Expr* expr);
// The elements of the operand that a device needs to compute its part of the result.
[[nodiscard]] Part windowNeeds(const Expr* expr, int64_t operand, const ShardState& result, int64_t device);

// The halo exchanges that the steps of a planned fusion name. Steps that share an exchange receive in one transfer.
//
// mesh {x: 4}, T0[16] S0(x), slices 1:15 and 2:16, S0(x), shared 0(x)     each rank but the last receives two elements for both
class HaloExchanges {
 public:
  // UserError that names window, step and operand for a step that does not fit the shardings or cannot share its exchange.
  explicit HaloExchanges(const Fusion& fusion);

  struct Place {
    int64_t number = 0;  // index of the exchange
    HaloStep step;
    bool isFirst = true;  // no earlier window shares the exchange
  };
  // Null if the operand is not a tensor, or if the op has no halo exchange.
  [[nodiscard]] const Place* find(const Expr* expr, int64_t operand) const;
  [[nodiscard]] const HaloExchange& exchange(const Place& place) const { return exchanges_[place.number]; }

 private:
  void add(const Expr* expr, int64_t step);

  std::vector<HaloExchange> exchanges_;
  // By number in the steps: the index of the exchange, and its operand.
  std::map<int64_t, std::pair<int64_t, const TensorView*>> shared_;
  std::map<std::pair<int64_t, int64_t>, Place> places_;  // by ids of expr, and operand
};

}  // namespace meshfuse
