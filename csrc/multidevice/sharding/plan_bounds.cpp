#include "multidevice/sharding/plan_bounds.h"

#include <algorithm>

#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/held_tiles.h"
#include "multidevice/sharding/plan_space.h"

namespace meshfuse {

double leastElements(const ShardState& from, const ShardState& to) {
  if (!(from.mesh == to.mesh)) {
    return 0;
  }
  const std::optional<AtomPair> pair = atomPair(from, to, AtomLevel::Axis);
  if (!pair || !PlanSpace::fits(pair->from, pair->on.atoms.axisSizes())) {
    return 0;
  }
  const std::vector<int64_t> extents = from.constantShape();
  PlanSpace space(extents, pair->on.atoms.axisSizes(), pair->from, pair->to);
  return space.lowerBound(space.from());
}

int64_t largestState(std::span<const CommStep> steps, const std::vector<int64_t>& extents) {
  int64_t largest = 0;
  for (const CommStep& step : steps) {
    const std::vector<int64_t> units = indexUnits(step, extents);
    const DeviceMesh& after = step.to ? step.to->atoms : step.on.atoms;
    for (const auto& [atoms, state] : {std::pair(&step.on.atoms, &step.before), std::pair(&after, &step.after)}) {
      for (const Tile& tile : heldTiles(*atoms, *state, extents, units).tiles) {
        largest = std::max(largest, countOf(tile));
      }
    }
  }
  return largest;
}

}  // namespace meshfuse
