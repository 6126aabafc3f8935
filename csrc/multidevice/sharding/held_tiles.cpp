#include "multidevice/sharding/held_tiles.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/plan_space.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

int64_t countOf(const Tile& tile) { return productOf(tile, &IndexSet::count); }

int64_t countShared(const Tile& a, const Tile& b) {
  return productOf(indices(a), [&](int64_t k) { return a[k].countShared(b[k]); });
}

HeldTiles heldTiles(const DeviceMesh& atoms, const PlanState& state, const std::vector<int64_t>& extents,
                    const std::vector<int64_t>& units) {
  HeldTiles held;
  for (const int64_t device : atoms.devices()) {
    std::vector<int64_t> at = atoms.coordinates(device);
    Tile tile;
    for (int64_t k = 0; k < std::ssize(extents); k++) {
      tile.emplace_back(
          state.dims[k], extents[k], units[k], [&](int64_t atom) { return at[atom]; }, state.partsOf(k));
    }
    held.tiles.push_back(std::move(tile));
    held.at.push_back(std::move(at));
  }
  return held;
}

std::vector<int64_t> indexUnits(const CommStep& step, const std::vector<int64_t>& extents) {
  return mapped(indices(extents), [&](int64_t k) { return indexUnit(extents[k], step.before, step.after, k); });
}

int64_t elementsReceived(const CommStep& step, const std::vector<int64_t>& extents) {
  if (step.to) {
    return tileTransfer(step, extents).received;
  }
  if (!step.communicates()) {
    return 0;
  }
  const std::vector<int64_t> units = indexUnits(step, extents);
  const HeldTiles before = heldTiles(step.on.atoms, step.before, extents, units);
  const HeldTiles after = heldTiles(step.on.atoms, step.after, extents, units);
  int64_t in = 0;
  int64_t out = 0;
  int64_t lacking = 0;
  for (int64_t r = 0; r < std::ssize(before.tiles); r++) {
    const int64_t wanted = countOf(after.tiles[r]);
    in = std::max(in, countOf(before.tiles[r]));
    out = std::max(out, wanted);
    lacking = std::max(lacking, wanted - countShared(before.tiles[r], after.tiles[r]));
  }
  if (reduces(step.kind)) {
    const int64_t ranks = step.on.atoms.teamSize(step.axes);
    return static_cast<int64_t>(
        amountReceived(step.kind, static_cast<double>(in), static_cast<double>(out), static_cast<double>(ranks)));
  }
  return step.before.partial == step.after.partial ? lacking : out;
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
