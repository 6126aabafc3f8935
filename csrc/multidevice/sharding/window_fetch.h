// Windows along sharded dims: what ranks fetch of the operands of a slice, a pad or a concatenation whose parts do not fall on those of
// the operands.
//
//   mesh {x: 4}, T0[8] S0(x), T1 = slice(T0, 1:8), S0(x)     each rank fetches one element from its right neighbour
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/index_run.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class Expr;

struct WindowMessage {
  int64_t from = 0;  // device ids
  int64_t to = 0;
  IndexBlock block;  // indices of the operand
};

// Of one operand.
struct WindowFetch {
  std::vector<WindowMessage> messages;
  std::vector<WindowMessage> kept;  // what a device has already: from == to
  double cost = 0;                  // as a plan's
  int64_t received = 0;             // elements, by the busiest device
  // All ranks along these axes of the mesh want one block, which the one at `root` holds: they are sent it at once.
  std::vector<int> broadcastAxes;
  int64_t root = 0;
  std::string step;  // transfer(x), broadcast(x); slice where every rank has what it needs
};

// Slice, Pad or Cat.
[[nodiscard]] bool isWindowOp(const Expr* expr);
// One of which it was decided that it fetches what it needs: its edges may communicate.
[[nodiscard]] bool fetchesWindow(const Expr* expr);
// The indices of an operand that a device needs for its part of the result.
[[nodiscard]] IndexBlock windowNeeds(const Expr* expr, int operand, const ShardState& result, int64_t device);
// As the settings of its fusion price it. Nothing where sizes or places are not constants, or the operand is a partial sum.
[[nodiscard]] std::optional<WindowFetch> windowFetch(const Expr* expr, int operand);

}  // namespace meshfuse
