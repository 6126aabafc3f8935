// The groups that kernels of rows can compute.
#pragma once

#include "schedule/coordinates.h"
#include "schedule/group.h"

namespace meshfuse {

// The coordinates of a group, or why kernels of rows cannot compute it: it has an op that kernels do not compute, indexes data that it
// computes itself, has no common coordinates, or would recompute too many values.
[[nodiscard]] CoordinatesOrReason rowCoordinates(const Group& group);

}  // namespace meshfuse
