#include "schedule/registry.h"

#include <algorithm>
#include <array>

#include "ir/fusion.h"
#include "schedule/eligibility.h"
#include "schedule/rows.h"

namespace meshfuse {

namespace {

std::optional<std::string> refusePointwise(const Eligibility& judged, const DeviceInfo&) {
  return !judged.reason && judged.coordinates.hasReduction() ? "it reduces" : judged.reason;
}

std::optional<std::string> refuseNormalization(const Eligibility& judged, const DeviceInfo&) {
  return !judged.reason && !judged.coordinates.hasReduction() ? "it does not reduce" : judged.reason;
}

std::optional<std::string> refuseReduction(const Eligibility& judged, const DeviceInfo& device) {
  const Coordinates& c = judged.coordinates;
  return !judged.reason && (c.rounds > 1 || c.spreadOutputs()) ? "it uses a reduction's result along the reduced dims"
                                                               : refuseNormalization(judged, device);
}

KernelPlan withName(std::string_view name, const Group& group, const DeviceInfo& device) {
  KernelPlan plan = scheduleRows(group, device, std::string(name));
  plan.scheduler = name;
  return plan;
}

KernelPlan schedulePointwise(const Group& g, const DeviceInfo& d) { return withName("pointwise", g, d); }
KernelPlan scheduleReduction(const Group& g, const DeviceInfo& d) { return withName("reduction", g, d); }
KernelPlan scheduleNormalization(const Group& g, const DeviceInfo& d) { return withName("normalization", g, d); }

constexpr std::array kSchedulers = {
    Scheduler{"pointwise", 3, refusePointwise, schedulePointwise},
    Scheduler{"reduction", 2, refuseReduction, scheduleReduction},
    Scheduler{"normalization", 1, refuseNormalization, scheduleNormalization},
};

}  // namespace

std::span<const Scheduler> kernelSchedulers() { return kSchedulers; }

SchedulerChoice chooseScheduler(const Group& group, const DeviceInfo& device, std::span<const Scheduler> schedulers) {
  return chooseScheduler(rowEligibility(group), device, schedulers);
}

SchedulerChoice chooseScheduler(const Eligibility& judged, const DeviceInfo& device,
                                std::span<const Scheduler> schedulers) {
  SchedulerChoice choice;
  for (const Scheduler& s : schedulers) {
    std::optional<std::string> refused = s.refuse(judged, device);
    if (refused) {
      choice.reason = std::move(*refused);
    } else if (choice.scheduler == nullptr || s.priority > choice.scheduler->priority) {
      choice.scheduler = &s;
    }
  }
  return choice;
}

}  // namespace meshfuse
