// While sizes of mesh axes are symbols, the axes that cut a dim are assumed to divide it.
//
//   mesh {tp: tp}, T[512] outer_split(0, tp), bound to tp, reshaped to [8, 64]      tp divides 8, and so 512
//
// Shardings propagate under these facts. Results do not depend on them once sizes are known: if a fact is false, the same splits give
// uneven parts.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "digits/prover.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class Fusion;

// An analysis of a fusion, see analysis/pass_context.h: these facts together with the facts of size_facts.h. A fusion without symbols
// has no facts.
class AxisFacts {
 public:
  static constexpr std::string_view kName = "axis-facts";
  explicit AxisFacts(const Fusion& fusion);
  const Prover& prover() const { return prover_; }

 private:
  Prover prover_;
};

// The state of a tensor of this shape at the hints of its mesh; nullopt if an extent is a symbol, or if the hints do not divide it.
[[nodiscard]] std::optional<ShardState> atHints(const ShardState& state, const std::vector<IntExpr>& shape);

}  // namespace meshfuse
