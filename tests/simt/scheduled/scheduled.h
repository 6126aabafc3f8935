// What the schedulers make of a fusion for a GPU, run under the emulator and compared with the reference interpreter within
// the bounds that types and lengths imply.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/fusion.h"
#include "schedule/group.h"
#include "simt/emulator.h"
#include "tensor/argument.h"

namespace meshfuse::simt {

struct ScheduledCase {
  const Fusion* fusion;  // one kernel: some scheduler takes all of it
  std::vector<Argument> inputs;
};

struct ScheduledVerdict {
  std::string difference;  // the first output that differs, and where; empty if none does
  Result result;
  KernelPlan plan;
  CudaSource source;
  bool right() const { return difference.empty() && result.faultCount == 0; }
  std::string describe() const;  // difference, faults, tile program and text
};

// All in one batch of `runner`. UserError where no scheduler takes a fusion.
[[nodiscard]] std::vector<ScheduledVerdict> runScheduled(std::span<const ScheduledCase> cases,
                                                         const DeviceInfo& device = DeviceInfo::hopper(),
                                                         const Runner& runner = {});

}  // namespace meshfuse::simt
