// The groups that kernels of rows can compute.
#pragma once

#include "schedule/coordinates.h"
#include "schedule/group.h"

namespace meshfuse {

// The coordinates of a group, or why kernels of rows cannot compute it: it has an op that is not for kernels, indexes data that it
// computes itself, has no common coordinates, or would compute too many values again.
[[nodiscard]] CoordinatesOrReason rowCoordinates(const Group& group);

}  // namespace meshfuse
