// Runs a plan on index sets: computes by brute force which elements every rank holds before and after each step.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

// InternalError unless every step delivers only elements that ranks hold, sums every contribution once, receives the stated number of
// elements and stays within `bound`, and the plan leads from one state to the other.
void checkPlan(const RedistributionPlan& plan, const ShardState& from, const ShardState& to, int64_t bound);

// Checks in the same way that the steps lead from one state to the other. Returns the first error; nothing if there is none. The steps may
// come from a parsed text; the axes of each step are axes of its mesh.
[[nodiscard]] std::optional<std::string> mistakeOf(std::span<const CommStep> steps, const ShardState& from,
                                                   const ShardState& to);

}  // namespace meshfuse
