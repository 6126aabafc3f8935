// Plans between placements whose atoms do not meet: on two meshes (disjoint, overlapping, of different sizes), or on one mesh
// where the two cut an axis in ways that do not nest.
//
// Sums are combined inside the source; tiles are transferred; the destination is finished by a chain of its own. Spreading what is
// replicated over idle axes, on either side, is tried beside: then no element crosses twice.
#pragma once

#include "multidevice/sharding/planner.h"

namespace meshfuse {

[[nodiscard]] RedistributionPlan planBetween(const ShardState& from, const ShardState& to,
                                             const std::vector<int64_t>& shape, const PlanOptions& options);

}  // namespace meshfuse
