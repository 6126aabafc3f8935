// A plan run on index sets: what every rank holds before and after each step, by brute force.
#pragma once

#include "multidevice/sharding/planner.h"

namespace meshfuse {

// InternalError unless every step finds what it delivers, sums every contribution once, receives what it says, stays within `bound`,
// and the plan leads from one state to the other.
void checkPlan(const RedistributionPlan& plan, const ShardState& from, const ShardState& to, int64_t bound);

}  // namespace meshfuse
