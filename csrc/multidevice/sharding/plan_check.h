// A plan run on index sets: what every rank holds before and after each step, by brute force.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

// InternalError unless every step finds what it delivers, sums every contribution once, receives what it says, stays within `bound`,
// and the plan leads from one state to the other.
void checkPlan(const RedistributionPlan& plan, const ShardState& from, const ShardState& to, int64_t bound);

// What is wrong with steps that are to lead from one state to the other, found in the same way; nothing if they do. Steps may be
// anybody's: their axes are those of their meshes.
[[nodiscard]] std::optional<std::string> mistakeOf(std::span<const CommStep> steps, const ShardState& from,
                                                   const ShardState& to);

}  // namespace meshfuse
