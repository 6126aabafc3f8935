// Bounds for every plan of a redistribution.
#pragma once

#include <cstdint>
#include <span>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// The least number of elements that the busiest rank receives in any plan: the maximum over ranks of |needed - held|; for partial sums a
// bound on the mean. 0 between two meshes, and if the digits of both sides do not nest.
[[nodiscard]] double leastElements(const ShardState& from, const ShardState& to);

// Elements of the largest part that a rank holds before, between and after the steps.
[[nodiscard]] int64_t largestState(std::span<const CommStep> steps, const std::vector<int64_t>& extents);

}  // namespace meshfuse
