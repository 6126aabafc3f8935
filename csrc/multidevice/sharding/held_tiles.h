// The elements of a tensor that every device holds in a state of a plan, counted index by index, and the elements that plans move.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/index_set.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

using Tile = std::vector<IndexSet>;  // by dim

[[nodiscard]] int64_t countOf(const Tile& tile);
[[nodiscard]] int64_t countShared(const Tile& a, const Tile& b);

struct HeldTiles {
  std::vector<Tile> tiles;               // by position in the mesh
  std::vector<std::vector<int64_t>> at;  // coordinates, by atom
};

// units: by dim, as indexUnit() gives them for the states that are compared.
[[nodiscard]] HeldTiles heldTiles(const DeviceMesh& atoms, const PlanState& state, const std::vector<int64_t>& extents,
                                  const std::vector<int64_t>& units);
[[nodiscard]] std::vector<int64_t> indexUnits(const CommStep& step, const std::vector<int64_t>& extents);

// The number of elements that the busiest rank receives in a step on a tensor of these extents.
[[nodiscard]] int64_t elementsReceived(const CommStep& step, const std::vector<int64_t>& extents);
// Elements of the largest part that a rank holds before, between and after the steps.
[[nodiscard]] int64_t largestState(std::span<const CommStep> steps, const std::vector<int64_t>& extents);
// The least number of elements that the busiest rank receives in any plan: the maximum over ranks of |needed - held|; for partial sums a
// bound on the mean. 0 between two meshes, and if the digits of both sides do not nest.
[[nodiscard]] double leastElements(const ShardState& from, const ShardState& to);

}  // namespace meshfuse
