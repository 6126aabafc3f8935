// The elements that ranks receive in the steps of a plan, and hold between them.
//
//   mesh {x: 2}, T[8, 6], all_gather(x) from S0(x) to R      each rank receives 24 elements; the largest state has 48
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// The number of elements that the busiest rank receives in a step on a tensor of these extents.
[[nodiscard]] int64_t elementsReceived(const CommStep& step, const std::vector<int64_t>& extents);
// Elements of the largest part that a rank holds before, between and after the steps.
[[nodiscard]] int64_t largestState(std::span<const CommStep> steps, const std::vector<int64_t>& extents);
// The least number of elements that the busiest rank receives in any plan: the maximum over ranks of |needed - held|; for partial sums a
// bound on the mean. 0 between two meshes, or if the digits of both sides do not nest.
[[nodiscard]] double leastElements(const ShardState& from, const ShardState& to);

}  // namespace meshfuse
