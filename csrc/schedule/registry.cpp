#include "schedule/registry.h"

#include <algorithm>
#include <array>

#include "ir/fusion.h"
#include "schedule/eligibility.h"
#include "schedule/rows.h"

namespace meshfuse {

namespace {

std::optional<std::string> refusePointwise(const Group& group, const DeviceInfo&) {
  if (std::any_of(group.exprs.begin(), group.exprs.end(),
                  [](const Expr* e) { return e->kind() == ExprKind::Reduce; })) {
    return "it reduces";
  }
  Eligibility e = rowEligibility(group);
  if (!e.reason && e.coordinates.hasReduction()) {
    return "it reduces";
  }
  return e.reason;
}

std::optional<std::string> refuseReduction(const Group& group, const DeviceInfo&) {
  Eligibility e = rowEligibility(group);
  if (!e.reason && !e.coordinates.hasReduction()) {
    return "it does not reduce";
  }
  if (!e.reason && (e.coordinates.rounds > 1 || e.fullOutputs)) {
    return "it uses a reduction's result along the reduced dims";
  }
  return e.reason;
}

std::optional<std::string> refuseNormalization(const Group& group, const DeviceInfo&) {
  Eligibility e = rowEligibility(group);
  if (!e.reason && !e.coordinates.hasReduction()) {
    return "it does not reduce";
  }
  return e.reason;
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

}  // namespace meshfuse
