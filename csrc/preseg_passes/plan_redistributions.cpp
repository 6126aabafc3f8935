#include "preseg_passes/plan_redistributions.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/halo_plan.h"
#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/plan_memo.h"
#include "multidevice/sharding/sized_steps.h"

namespace meshfuse {

namespace {

// Plans the halo exchanges that have no steps yet. A transfer joins an earlier one of the same tensor if one transfer for both costs no
// more than two.
class HaloPlanner {
 public:
  explicit HaloPlanner(Fusion& fusion) : fusion_(fusion) {}

  bool run() {
    bool isWritten = false;
    for (Expr* e : filtered(fusion_.exprs(), exchangesHalo)) {
      const std::vector<HaloStep>& steps = *e->attributes().haloSteps;
      isWritten |= !steps.empty();
      for (const HaloStep& step : steps) {
        numbers_ = std::max(numbers_, step.shared.value_or(-1) + 1);
      }
      for (const int64_t operand : steps.empty() ? e->tensorPositions() : std::vector<int64_t>()) {
        add(e, operand);
      }
    }
    for (Transfer& t : transfers_) {
      for (const auto& [window, k] : t.readers) {
        steps_[window][k].shared = t.readers.size() > 1 ? std::optional(numbers_) : std::nullopt;
      }
      numbers_ += t.readers.size() > 1 ? 1 : 0;
    }
    for (auto& [window, steps] : steps_) {
      fusion_.setHaloSteps(window, std::move(steps));
    }
    if (isWritten) {
      const HaloExchanges written(fusion_);  // UserError if a step in the text does not fit
    }
    return !steps_.empty();
  }

 private:
  struct Transfer {
    const TensorView* operand;
    HaloExchange exchange;
    std::vector<std::pair<Expr*, int64_t>> readers;  // windows, and the number of the step
  };

  void add(Expr* window, int64_t operand) {
    std::optional<HaloExchange> exchange = haloExchange(window, operand);
    check(
        exchange.has_value(),
        "[plan-redistributions] the text asks {} for a halo exchange of {}, which needs constant sizes and offsets and "
        "an operand that is no partial sum; leave out plan=",
        window->tensorOutput()->toString(), window->input(operand)->toString());
    std::vector<HaloStep>& steps = steps_[window];
    steps.push_back(exchange->step);
    if (exchange->step.kind == Collective::Transfer) {
      add(Transfer{window->input(operand)->asTensor(), *std::move(exchange), {{window, std::ssize(steps) - 1}}});
    }
  }

  void add(Transfer transfer) {
    for (Transfer& t : transfers_) {
      std::optional<HaloExchange> both =
          t.operand == transfer.operand ? together(t.operand, t.exchange, transfer.exchange) : std::nullopt;
      if (both && both->cost <= t.exchange.cost + transfer.exchange.cost) {
        t.exchange = *std::move(both);
        append(t.readers, transfer.readers);
        return;
      }
    }
    transfers_.push_back(std::move(transfer));
  }

  Fusion& fusion_;
  int64_t numbers_ = 0;
  std::vector<Transfer> transfers_;
  std::map<Expr*, std::vector<HaloStep>> steps_;
};

bool hasKnownSizes(const ShardState& state, const PlanMemo& plans) {
  return !state.mesh.isSymbolic() &&
         std::ranges::all_of(state.dims, [&](const DigitList& dim) { return plans.atSizes(dim.extent()).isConst(); });
}

bool planRedistribute(Fusion& fusion, Expr* e, PassContext& context) {
  const TensorView* from = e->tensorInputs()[0];
  const TensorView* to = e->tensorOutput();
  if (!from->hasDeviceMesh() || !to->hasDeviceMesh()) {
    return false;
  }
  const ShardState held = shardState(from);
  const ShardState wanted = shardState(to);
  PlanMemo& plans = context.memo<PlanMemo>();
  if (!hasKnownSizes(held, plans) || !hasKnownSizes(wanted, plans)) {
    return false;
  }
  const auto checkAnySize = [&](std::span<const CommStep> steps) {
    const std::string why = whyOfOneSize(steps, mapped(wanted.dims, [](const DigitList& dim) { return dim.extent(); }));
    check(why.empty(), "[plan-redistributions] {} -> {}: {}; give constant sizes", from->toString(), to->toString(),
          why);
  };
  if (e->attributes().plan) {
    checkAnySize(*e->attributes().plan);
    const std::optional<std::string> mistake =
        mistakeOf(*e->attributes().plan, plans.atSizes(held), plans.atSizes(wanted));
    check(!mistake,
          "[plan-redistributions] the plan in the text of {} does not lead from {} to {}: {}; leave out plan=",
          to->toString(), held.toString(), wanted.toString(), mistake.value_or(""));
    return false;
  }
  const RedistributionPlan& plan = plans.plan(fusion, held, wanted);
  checkAnySize(plan.steps);
  if (!plan.note.empty()) {
    context.remark(fmt::format("{} -> {}: {}", from->toString(), to->toString(), plan.note));
  }
  fusion.setPlan(e, plan.steps);
  return true;
}

}  // namespace

bool planRedistributions(Fusion& fusion, PassContext& context) {
  bool changed = HaloPlanner(fusion).run();
  for (Expr* e : fusion.exprs()) {
    if (e->kind() == ExprKind::Redistribute) {
      changed |= planRedistribute(fusion, e, context);
    }
  }
  return changed;
}

}  // namespace meshfuse
