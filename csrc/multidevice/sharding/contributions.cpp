#include "multidevice/sharding/contributions.h"

#include <fmt/core.h>

#include <cstdint>
#include <vector>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

std::string wrongContributions(const TensorView* tv, const Prover& prover) {
  const IterDomain* partial = tv->partialDomain();
  if (partial == nullptr) {
    return "";
  }
  const std::vector<int64_t> axes = tv->hasDeviceMesh() ? shardState(tv, prover).partial : std::vector<int64_t>();
  if (axes.empty()) {
    return fmt::format(
        "dim {} of {} is a part of a reduced dim and bound to no axis; expected a partial sum over an axis: bind the "
        "dim, or split the reduced dim with reshape and reduce only its other part",
        tv->partialDim(), tv->toString());
  }
  const IntExpr ranks = productOf(axes, [&](int64_t axis) { return tv->getDeviceMesh().axisSize(axis); });
  if (!ranks.isConst() || !partial->extent().isConst() || ranks == partial->extent()) {
    return "";
  }
  return fmt::format(
      "dim {} of {} counts {} contributions, the axes {} that own it have {} ranks; expected one for each rank: reduce "
      "the rest first",
      tv->partialDim(), tv->toString(), partial->extent().toString(),
      joined(axes, ", ", [&](int64_t axis) { return tv->getDeviceMesh().axisName(axis); }), ranks.toString());
}

}  // namespace meshfuse
