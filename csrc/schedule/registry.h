// The schedulers, one row each, tried by priority.
#pragma once

#include <span>
#include <string>

#include "schedule/group.h"

namespace meshfuse {

[[nodiscard]] std::span<const Scheduler> kernelSchedulers();

// The scheduler of the highest priority among those that take the group; null, and why the last one refused, if none does.
struct SchedulerChoice {
  const Scheduler* scheduler = nullptr;
  std::string reason;
};
[[nodiscard]] SchedulerChoice chooseScheduler(const Group& group, const DeviceInfo& device,
                                              std::span<const Scheduler> schedulers = kernelSchedulers());
[[nodiscard]] SchedulerChoice chooseScheduler(const Eligibility& judged, const DeviceInfo& device,
                                              std::span<const Scheduler> schedulers = kernelSchedulers());

}  // namespace meshfuse
