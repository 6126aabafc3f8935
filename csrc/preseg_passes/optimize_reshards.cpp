#include "preseg_passes/optimize_reshards.h"

#include <algorithm>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/halo_exchange.h"
#include "multidevice/sharding/plan_memo.h"
#include "preseg_passes/decompose_reshardings.h"
#include "preseg_passes/reshard_cost.h"
#include "preseg_passes/reshard_edges.h"
#include "preseg_passes/reshard_partials.h"
#include "preseg_passes/reshard_regions.h"
#include "preseg_passes/reshard_sums.h"

namespace meshfuse {

namespace {

// Some tensor is redistributed, its cost is known, and no redistribution or window has a plan yet.
bool canOptimize(const Fusion& fusion, const PlanMemo& plans) {
  const std::vector<Expr*> exprs = fusion.exprs();
  const auto isReshard = [](const Expr* e) { return e->kind() == ExprKind::Redistribute; };
  const auto isPlanned = [](const Expr* e) {
    return e->attributes().plan || (exchangesHalo(e) && !e->attributes().haloSteps->empty());
  };
  return std::ranges::any_of(exprs, isReshard) && std::ranges::none_of(exprs, isPlanned) &&
         std::ranges::all_of(fusion.tensors(), [&](const TensorView* tv) { return hasKnownSizes(tv, plans); });
}

// Whether a window exchanges halos is a decision for the shardings at that time.
void decideOnWindowsAgain(Fusion& fusion, PassContext& context) {
  const std::vector<Expr*> windows = filtered(fusion.exprs(), exchangesHalo);
  for (Expr* e : windows) {
    fusion.setHaloSteps(e, std::nullopt);
  }
  if (!windows.empty()) {
    decomposeReshardings(fusion, context);
  }
}

}  // namespace

bool optimizeReshards(Fusion& fusion, PassContext& context) {
  if (!context.settings().optimizeReshards || !canOptimize(fusion, context.memo<PlanMemo>())) {
    return false;
  }
  bool changed = false;
  for (bool more = true; more;) {
    more = addPartialSums(fusion, context);
    more |= delayPartialSums(fusion, context);
    more |= rewriteReshardEdges(fusion, context);
    more |= splitAllReduces(fusion, context);
    changed |= more;
  }
  if (changed) {
    decideOnWindowsAgain(fusion, context);
  }
  return changed;
}

}  // namespace meshfuse
