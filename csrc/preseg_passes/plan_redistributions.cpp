#include "preseg_passes/plan_redistributions.h"

#include <fmt/ranges.h>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/window_fetch.h"

namespace meshfuse {

namespace {

void checkGiven(const Expr* e, const std::vector<std::string>& needed) {
  const std::vector<std::string>& given = e->attributes().plan;
  check(given == needed,
        "[plan-redistributions] {} is written as planned by [{}], its shardings need [{}]; leave out plan=",
        e->tensorOutput()->toString(), fmt::join(given, ", "), fmt::join(needed, ", "));
}

// A window has a plan since it was decided that it fetches, of itself alone; what is written may be another's.
bool planWindow(Fusion& fusion, Expr* e, const WindowFetches& windows) {
  std::vector<std::string> alone;
  for (size_t k = 0; k < e->inputs().size(); k++) {
    if (e->input(static_cast<int>(k))->isTensor()) {
      const std::optional<WindowFetch> fetch = windowFetch(e, static_cast<int>(k));
      check(fetch.has_value(),
            "[plan-redistributions] {} is written as planned by [{}], but cannot fetch what it needs; leave out plan=",
            e->tensorOutput()->toString(), fmt::join(e->attributes().plan, ", "));
      alone.push_back(fetch->step);
    }
  }
  std::vector<std::string> steps = windows.steps(e);
  if (e->attributes().plan == steps) {
    return false;
  }
  checkGiven(e, alone);
  fusion.setPlan(e, std::move(steps));
  return true;
}

}  // namespace

bool planRedistributions(Fusion& fusion, PassContext& context) {
  bool changed = false;
  const WindowFetches windows(fusion);
  for (Expr* e : fusion.exprs()) {
    if (fetchesWindow(e)) {
      changed |= planWindow(fusion, e, windows);
    }
    if (e->kind() != ExprKind::Redistribute) {
      continue;
    }
    const TensorView* from = e->tensorInputs()[0];
    const TensorView* to = e->tensorOutput();
    if (!from->hasDeviceMesh() || !to->hasDeviceMesh()) {
      continue;
    }
    const RedistributionPlan plan = *planIn(fusion, shardState(from), shardState(to));
    std::vector<std::string> steps;
    for (const CommStep& step : plan.steps) {
      steps.push_back(step.toString());
    }
    if (!e->attributes().plan.empty()) {
      checkGiven(e, steps);
      continue;
    }
    if (!plan.note.empty()) {
      context.remark(fmt::format("{} -> {}: {}", from->toString(), to->toString(), plan.note));
    }
    changed |= !steps.empty();
    fusion.setPlan(e, std::move(steps));
  }
  return changed;
}

}  // namespace meshfuse
