#include "preseg_passes/plan_redistributions.h"

#include <algorithm>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/plan_text.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/plan_memo.h"

namespace meshfuse {

namespace {

// decompose-reshardings planned the halo exchange of each window alone. The plan written in the text may share another window's exchange.
bool planWindow(Fusion& fusion, Expr* e, const HaloExchanges& windows) {
  const std::vector<HaloStep>& given = e->attributes().haloSteps;
  std::vector<HaloStep> steps = windows.steps(e);
  check(steps.size() == e->tensorInputs().size(),
        "[plan-redistributions] {} has the step {} in the text, but no exchange is possible; leave out plan=",
        e->tensorOutput()->toString(), toString(given.front()));
  check(given.size() == steps.size(),
        "[plan-redistributions] the plan of {} has {} steps in the text, the last one {}; expected {}; leave out plan=",
        e->tensorOutput()->toString(), given.size(), toString(given.back()), steps.size());
  if (given == steps) {
    return false;
  }
  for (const int64_t k : indices(steps)) {
    HaloStep alone = steps[k];
    alone.isShared = false;
    check(given[k] == alone || given[k] == steps[k],
          "[plan-redistributions] step {} of the plan of {}, {} of {}, does not fit the shardings: expected {}; leave "
          "out plan=",
          k, e->tensorOutput()->toString(), toString(given[k]), e->tensorInputs()[k]->toString(), toString(alone));
  }
  fusion.setHaloSteps(e, std::move(steps));
  return true;
}

bool hasConstantSizes(const ShardState& state) {
  return !state.mesh.isSymbolic() &&
         std::ranges::all_of(state.dims, [](const DigitList& dim) { return dim.extent().isConst(); });
}

bool planRedistribute(Fusion& fusion, Expr* e, PassContext& context) {
  const TensorView* from = e->tensorInputs()[0];
  const TensorView* to = e->tensorOutput();
  if (!from->hasDeviceMesh() || !to->hasDeviceMesh()) {
    return false;
  }
  const ShardState held = shardState(from);
  const ShardState wanted = shardState(to);
  if (e->attributes().plan) {
    const std::optional<std::string> mistake = mistakeOf(*e->attributes().plan, held, wanted);
    check(!mistake,
          "[plan-redistributions] the plan in the text of {} does not lead from {} to {}: {}; leave out plan=",
          to->toString(), held.toString(), wanted.toString(), mistake.value_or(""));
    return false;
  }
  if (!hasConstantSizes(held) || !hasConstantSizes(wanted)) {
    return false;
  }
  const RedistributionPlan& plan = context.memo<PlanMemo>().plan(fusion, held, wanted);
  if (!plan.note.empty()) {
    context.remark(fmt::format("{} -> {}: {}", from->toString(), to->toString(), plan.note));
  }
  fusion.setPlan(e, plan.steps);
  return true;
}

}  // namespace

bool planRedistributions(Fusion& fusion, PassContext& context) {
  bool changed = false;
  const HaloExchanges windows(fusion);
  for (Expr* e : fusion.exprs()) {
    if (exchangesHalo(e)) {
      changed |= planWindow(fusion, e, windows);
    }
    if (e->kind() == ExprKind::Redistribute) {
      changed |= planRedistribute(fusion, e, context);
    }
  }
  return changed;
}

}  // namespace meshfuse
