// The elements of a tensor that every device holds in a state of a plan, index by index: the checker of plans trusts no runs of indices.
#pragma once

#include <cstdint>
#include <vector>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/index_set.h"

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

}  // namespace meshfuse
