// Bounds of a redistribution, beside its plan.
#pragma once

#include <cstdint>
#include <span>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// Elements that the busiest rank receives at least, whatever the plan: max over ranks of |needed - held|, of sums a bound on the mean.
// 0 between two meshes, and where the digits of both sides do not nest.
[[nodiscard]] double leastElements(const ShardState& from, const ShardState& to);

// Elements of the largest part that a rank holds before, between and after the steps.
[[nodiscard]] int64_t largestState(std::span<const CommStep> steps, const std::vector<int64_t>& extents);

}  // namespace meshfuse
