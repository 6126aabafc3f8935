#include "multidevice/sharding/step_amounts.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/plan_space.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

int64_t elementsReceived(const CommStep& step, const std::vector<int64_t>& extents) {
  if (step.to) {
    return tileTransfer(step, extents).received;
  }
  if (!step.communicates()) {
    return 0;
  }
  int64_t in = 0;
  int64_t out = 0;
  int64_t lacking = 0;
  for (const int64_t device : step.on.atoms.devices()) {
    const std::vector<int64_t> at = step.on.atoms.coordinates(device);
    const Part before = heldPart(step.before, extents, at);
    const Part after = heldPart(step.after, extents, at);
    in = std::max(in, before.count());
    out = std::max(out, after.count());
    lacking = std::max(lacking, after.count() - intersection(before, after).count());
  }
  if (reduces(step.kind)) {
    return amountReceived(step.kind, in, out, step.on.atoms.teamSize(step.axes));
  }
  return step.before.partial == step.after.partial ? lacking : out;
}

int64_t largestState(std::span<const CommStep> steps, const std::vector<int64_t>& extents) {
  int64_t largest = 0;
  for (const CommStep& step : steps) {
    const DeviceMesh& after = step.to ? step.to->atoms : step.on.atoms;
    for (const auto& [atoms, state] : {std::pair(&step.on.atoms, &step.before), std::pair(&after, &step.after)}) {
      for (const int64_t device : atoms->devices()) {
        largest = std::max(largest, heldPart(*state, extents, atoms->coordinates(device)).count());
      }
    }
  }
  return largest;
}

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

}  // namespace meshfuse
