#include "multidevice/sharding/held_tiles.h"

#include <cstdint>

#include "base/ranges.h"

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

}  // namespace meshfuse
