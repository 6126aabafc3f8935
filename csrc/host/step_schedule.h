// The order in which the steps of a host program are issued.
//
//   given       all-reduce T3, neg T4, exp T5, add T6 (T3, T5)        queues 1, 0, 0, 0
//   scheduled   all-reduce T3 is posted; neg T4 and exp T5 run; add T6 waits for T3
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/happens_before.h"

namespace meshfuse {

struct StepUse {
  int64_t queue = 0;           // 0: work of the device; others: collectives
  std::vector<int64_t> reads;  // memory, by number
  std::vector<int64_t> writes;
};

struct StepSchedule {
  std::vector<int64_t> steps;     // positions in the given list, in the order of issue
  std::vector<StepOrder> orders;  // of the steps in the order of issue
};

// List scheduling. Collectives keep their order, because all ranks must agree on it. A collective is issued when its dependencies are
// issued and its position in the given list is at most `early` after that of the first step of the device that is not yet issued. If
// `early` is less than the number of steps, a collective also begins after the step of the device that is issued last before it. Of the
// work of the device, the steps that the next collectives need come first, and the steps that need a collective in flight come last. A step
// of the device is issued at most `ahead` positions before an earlier one of the given list; 0 keeps their order. Two steps that use the
// same memory stay in the given order if one of them writes it.
[[nodiscard]] StepSchedule scheduleSteps(std::span<const StepUse> steps, int64_t ahead, int64_t early);

}  // namespace meshfuse
