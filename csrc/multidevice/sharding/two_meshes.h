// Plans between shardings without common atoms: on two meshes (disjoint, overlapping, of different sizes), or on one mesh if the two
// shardings cut an axis in ways that do not nest.
//
// Partial sums are combined on the source mesh, tiles are transferred, and a chain of collectives on the destination mesh completes the
// plan. The planner also tries to cut replicated data over unused axes first, on either side, so that no element is sent twice.
#pragma once

#include "multidevice/sharding/planner.h"

namespace meshfuse {

[[nodiscard]] RedistributionPlan planBetween(const ShardState& from, const ShardState& to,
                                             const std::vector<int64_t>& shape, const PlanOptions& options);

}  // namespace meshfuse
