#include "preseg_passes/plan_redistributions.h"

#include <fmt/ranges.h>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

bool planRedistributions(Fusion& fusion, PassContext& context) {
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    if (e->kind() != ExprKind::Redistribute) {
      continue;
    }
    const TensorView* from = e->tensorInputs()[0];
    const TensorView* to = e->tensorOutput();
    if (!from->hasDeviceMesh() || !to->hasDeviceMesh()) {
      continue;
    }
    const RedistributionPlan plan = planRedistribution(shardState(from), shardState(to));
    std::vector<std::string> steps;
    for (const CommStep& step : plan.steps) {
      steps.push_back(step.toString());
    }
    if (const std::vector<std::string>& given = e->attributes().plan; !given.empty()) {
      check(given == steps,
            "[plan-redistributions] {} is written as planned by [{}], its shardings need [{}]; leave out plan=",
            to->toString(), fmt::join(given, ", "), fmt::join(steps, ", "));
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
