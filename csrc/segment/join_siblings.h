// Joins kernels that do not read each other:
//
//   y = exp(x)    z = tanh(x)            one kernel, x is read once
//   y = exp(x)    z = tanh(w)            one kernel if x and w are small and alike: one launch less
//
// Stands after every op has its step, since only then all are known that a kernel could have beside it, and before steps are put
// in order. Afterwards no two kernels are left that a scheduler takes together to advantage (judge_siblings.h), unless they wait
// for each other, or one of them would wait for communication or delay it.
//
// Quadratic in the number of kernels; each is looked at with at most eight others that refuse.
#pragma once

#include <span>

#include "schedule/group.h"

namespace meshfuse {

class StepGraph;

void joinSiblings(StepGraph& graph, const DeviceInfo& device, std::span<const Scheduler> schedulers);

}  // namespace meshfuse
