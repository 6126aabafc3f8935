#include "preseg_passes/reshard_cost.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

// UserError if expressions of sizes leave parts unknown.
void checkParts(const ShardState& state) {
  if (std::ranges::any_of(state.dims, &DigitList::isOpaque)) {
    throwUserError(
        fmt::format("[reshard-cost] the parts of {} are not known for all sizes of a class; give constant sizes",
                    state.toString()));
  }
}

}  // namespace

ReshardCost& ReshardCost::operator+=(const ReshardCost& more) {
  bytes += more.bytes;
  calls += more.calls;
  held += more.held;
  return *this;
}

ReshardCost& ReshardCost::operator-=(const ReshardCost& less) {
  bytes -= less.bytes;
  calls -= less.calls;
  held -= less.held;
  return *this;
}

bool hasKnownSizes(const TensorView* tv, const PlanMemo& plans) {
  return !tv->getDeviceMesh().isSymbolic() &&
         std::ranges::all_of(tv->shape(), [&](const IntExpr& extent) { return plans.atSizes(extent).isConst(); });
}

ReshardCost costOf(PlanMemo& plans, const ShardState& from, const ShardState& to, const TensorView* tv) {
  const bool empty = std::ranges::any_of(to.dims, [](const DigitList& dim) { return dim.extent().isConst(0); });
  if (from.mesh.empty() || empty) {
    return {};
  }
  checkParts(from);
  checkParts(to);
  const RedistributionPlan& plan = plans.plan(tv->fusion(), from, to);
  return {.bytes = plan.elements * dataTypeSize(tv->dtype()),
          .calls = std::ranges::count_if(plan.steps, &CommStep::communicates)};
}

ReshardCost costOf(PlanMemo& plans, const Expr* redistribute) {
  const TensorView* from = redistribute->input(0)->asTensor();
  return costOf(plans, shardState(from), shardState(redistribute->tensorOutput()), from);
}

int64_t localBytes(const PlanMemo& plans, const ShardState& state, DataType type) {
  checkParts(state);
  return dataTypeSize(type) *
         productOf(state.dims, [&](const DigitList& dim) { return plans.atSizes(dim.localSize()).constValue(); });
}

bool usesWholeAxes(const ShardState& state) {
  std::vector<IntExpr> owned(state.mesh.numAxes(), 1);
  for (const DigitList& dim : state.dims) {
    for (const Digit& d : dim.digits()) {
      if (d.owner.isDevice()) {
        owned[d.owner.axis] *= d.size;
      }
    }
  }
  return std::ranges::all_of(std::views::iota(int64_t{0}, state.mesh.numAxes()), [&](int64_t axis) {
    return owned[axis].isConst(1) || owned[axis] == state.mesh.axisSize(axis);
  });
}

bool isMovable(const TensorView* tv) {
  return tv->hasDeviceMesh() && !tv->isFusionInput() && !tv->isFusionOutput() && !tv->isUserSharded();
}

bool isOneMeshReshard(const Expr* expr) {
  if (expr->kind() != ExprKind::Redistribute) {
    return false;
  }
  const TensorView* from = expr->input(0)->asTensor();
  const TensorView* to = expr->tensorOutput();
  return from->hasDeviceMesh() && from->getDeviceMesh() == to->getDeviceMesh();
}

bool addsContributions(const Expr* expr) {
  return isOneMeshReshard(expr) && expr->attributes().reduce == ReduceOp::Sum &&
         expr->input(0)->asTensor()->isPartial();
}

std::vector<int64_t> idsOf(const Fusion& fusion, const std::function<bool(const Expr*)>& among) {
  return mapped(filtered(fusion.exprs(), among), &Expr::id);
}

TensorView* knownReshard(const TensorView* tv, const ShardState& state) {
  for (const Expr* use : tv->fusion().uses(tv)) {
    const bool isRead = !use->output()->fusion().uses(use->output()).empty() || use->output()->isFusionOutput();
    if (isRead && isOneMeshReshard(use) && provenEqual(shardState(use->tensorOutput()), state)) {
      return use->tensorOutput();
    }
  }
  return nullptr;
}

}  // namespace meshfuse
