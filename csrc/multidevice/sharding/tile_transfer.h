// Direct transfer: every rank receives the missing pieces of its tile from ranks that hold them.
//
//   mesh {x: 4}[0..3], S0(x) of T[8]  ->  mesh {y: 2}[2, 3], S0(y)
//   ranks 0 and 1 send two elements each to rank 2; rank 2 sends two to rank 3, which keeps 6 and 7
//
// It works between any two shardings, on one mesh or on two. If several ranks hold a piece, the rank that has sent the fewest elements so
// far sends it. To combine a partial sum, the receiver gets the terms of all ranks and adds them. A partial sum can stay a partial sum only
// on one mesh.
#pragma once

#include <cstdint>
#include <vector>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/tile_messages.h"

namespace meshfuse {

struct TileTransfer : TileMessages {
  DeviceMesh fromMesh;  // its axes are the atoms of `before`
  DeviceMesh toMesh;
  PlanState before;
  PlanState after;
};

// The transfer of a step that transfers tiles. If a state of the step is partial, the meshes are equal.
[[nodiscard]] TileTransfer tileTransfer(const CommStep& step, const std::vector<int64_t>& extents);

}  // namespace meshfuse
