// Windows along sharded dims: what ranks fetch of the operands of a slice, a pad or a concatenation whose parts do not fall on those of
// the operands.
//
//   mesh {x: 4}, T0[8] S0(x), T1 = slice(T0, 1:8), S0(x)     each rank fetches one element from its right neighbour
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

struct WindowMessage {
  int64_t from = 0;  // device ids
  int64_t to = 0;
  IndexBlock block;  // indices of the operand
};

// Of one operand.
struct WindowFetch {
  DeviceMesh to;                  // of the result
  std::vector<IndexBlock> needs;  // by position in it: indices of the operand
  std::vector<WindowMessage> messages;
  std::vector<WindowMessage> kept;  // what a device has already: from == to
  double cost = 0;                  // as a plan's
  int64_t received = 0;             // elements, by the busiest device
  int64_t total = 0;                // by all
  // All ranks along these axes of the mesh want one block, which the one at `root` holds: they are sent it at once.
  std::vector<int> broadcastAxes;
  IntExpr root = 0;
  WindowStep step;
};

// Slice, Pad, Cat, or one row by a run-time number, see row_fetch.h.
[[nodiscard]] bool isWindowOp(const Expr* expr);
// A window op whose plan is made: it fetches the elements it needs, so its edges may communicate.
[[nodiscard]] bool fetchesWindow(const Expr* expr);
// The indices of an operand that a device needs for its part of the result.
[[nodiscard]] IndexBlock windowNeeds(const Expr* expr, int operand, const ShardState& result, int64_t device);
// As the settings of its fusion price it. Nothing where sizes or places are not constants, or the operand is a partial sum. Of a row by a
// run-time number no messages.
[[nodiscard]] std::optional<WindowFetch> windowFetch(const Expr* expr, int operand);

// What the windows of a planned fusion fetch. Transfers of one tensor to one mesh are one where that costs no more: each rank receives at
// once the elements that any of the windows lacks there.
//
//   mesh {x: 4}, T0[16] S0(x), slices 0:14, 1:15 and 2:16, S0(x)     the second fetches two elements, the third shares them
class WindowFetches {
 public:
  explicit WindowFetches(const Fusion& fusion);

  struct Part {
    size_t number = 0;  // of the fetch
    WindowStep step;
  };
  // Null of an operand that is no tensor, or cannot be fetched.
  [[nodiscard]] const Part* find(const Expr* expr, int operand) const;
  [[nodiscard]] const WindowFetch& fetch(const Part& part) const { return fetches_[part.number]; }
  // By tensor operand; fewer where some cannot be fetched.
  [[nodiscard]] std::vector<WindowStep> steps(const Expr* expr) const;

 private:
  std::vector<WindowFetch> fetches_;
  std::map<std::pair<int, int>, Part> parts_;  // by ids of expr, and operand
};

}  // namespace meshfuse
