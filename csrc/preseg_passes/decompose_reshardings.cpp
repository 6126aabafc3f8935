#include "preseg_passes/decompose_reshardings.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/not_constant.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/halo_plan.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/plan_memo.h"
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "multidevice/sharding/size_facts.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/window_places.h"

namespace meshfuse {

namespace {

constexpr double kTie = 0.01;  // makes the choice among plans of equal cost unique

class Decomposition {
 public:
  Decomposition(Fusion& fusion, PlanMemo& plans, ShardStateMemo& states)
      : fusion_(fusion), plans_(plans), states_(states) {}

  // Windows come last: if an operand is moved for another reader, the window needs no halo exchange.
  bool run(const std::function<bool(const Expr*)>& among) {
    bool changed = false;
    std::vector<Expr*> windows;
    for (Expr* e : fusion_.exprs()) {
      if (e->kind() == ExprKind::Redistribute) {
        remember(e);
        continue;
      }
      if (e->outputs().size() == 1 && e->output()->isTensor() && e->output()->asTensor()->hasDeviceMesh() && among(e) &&
          needsWork(e)) {
        changed = true;
        if (isWindowOp(e) && isCheaperByExchange(e)) {
          windows.push_back(e);
        } else {
          rewrite(e);
        }
      }
    }
    for (Expr* e : windows) {
      if (isCheaperByExchange(e)) {
        fusion_.setHaloSteps(e, std::vector<HaloStep>());  // plan-redistributions plans them
      } else {
        rewrite(e);
      }
    }
    return changed;
  }

 private:
  struct Operand {
    int64_t position;
    Edge edge;
  };

  std::vector<Operand> operands(const Expr* e) const {
    return mapped(e->tensorPositions(), [&](int64_t operand) {
      return Operand{operand, edgeRelation(e, operand, e->tensorOutput(), states_)};
    });
  }

  // A scan or sort needs all elements along its dim, so a part of the result is cut out of the whole. So is a part of a written table that
  // is not a contiguous range.
  static bool isPartOfWhole(const Expr* e) {
    const OpForm form = ruleOf(*e).form;
    if (form != OpForm::Line && form != OpForm::Put) {
      return false;
    }
    const DigitList dim = shardState(e->tensorOutput()).dims[e->attributes().dim];
    return dim.hasOwned() && (form == OpForm::Line || !dim.isRange());
  }

  // An edge whose need is no rectangle cannot be cut out of what is held, even where all is held.
  bool needsWork(const Expr* e) const {
    const auto isOpen = [&](int64_t operand) {
      const Edge edge = edgeRelation(e, operand, e->tensorOutput(), states_);
      return edge.relation == EdgeRelation::Comm || !edge.needed;
    };
    return !exchangesHalo(e) && (isPartOfWhole(e) || std::ranges::any_of(e->tensorPositions(), isOpen));
  }

  void rewrite(Expr* e) {
    if (e->kind() == ExprKind::Set) {
      TensorView* from = e->input(0)->asTensor();
      TensorView* to = e->tensorOutput();
      fusion_.removeExpr(e);
      remember(fusion_.addExpr(ExprKind::Redistribute, {from}, {to}));
      return;
    }
    if (isPartOfWhole(e)) {
      makeWhole(e);
      if (!needsWork(e)) {
        return;
      }
    }
    TensorView* result = e->tensorOutput();
    const ShardState wanted = states_.state(result);
    const int64_t before = costBefore(e);
    const ShardState natural = naturalState(e);
    setShardState(result, natural);
    const bool fits = !needsWork(e) && natural.partial.empty() == wanted.partial.empty();
    const auto bytesAfter = [&] {
      return plans_.plan(fusion_, natural, wanted).elements * dataTypeSize(result->dtype());
    };
    if (fits && (before < 0 || bytesAfter() <= before)) {
      moveResult(e, wanted);
      return;
    }
    // If the result needs a part of an operand that is not a rectangle, every rank computes the whole result. Readers of a partial sum take
    // their parts of whole contributions.
    const bool asWhole = before < 0;
    setShardState(result, asWhole ? withWholeDims(wanted) : wanted);
    moveOperands(e);
    if (asWhole && wanted.isSharded() && wanted.partial.empty()) {
      moveResult(e, wanted);
    }
  }

  static ShardState withWholeDims(ShardState state) {
    for (const int64_t k : indices(state.dims)) {
      state.dims[k] = DigitList::whole(k, state.dims[k].extent());
    }
    return state;
  }

  // True for a window with a possible halo exchange that costs less than redistributions.
  bool isCheaperByExchange(Expr* e) {
    double cost = 0;
    for (const Operand& o : operands(e)) {
      const std::optional<HaloExchange> exchange = haloExchange(e, o.position);
      if (!exchange ||
          (exchange->step.kind == Collective::Transfer && isForbidden(fusion_.planner(), Collective::Transfer))) {
        return false;
      }
      cost += exchange->cost;
    }
    // one row of a table with as many rows as ranks costs as much as the whole, but fewer ranks receive it
    const double tie = e->kind() == ExprKind::IndexSelect ? -kTie : kTie;
    return cost < costOfMoving(e) - tie;
  }

  // Elements that a rank may hold on the way between two states.
  int64_t boundBetween(const ShardState& held, const ShardState& wanted) const {
    int64_t bound = fusion_.planner().bound.value_or(0);
    for (const ShardState* state : {&held, &wanted}) {
      for (const int64_t device : state->mesh.devices()) {
        bound = std::max(bound, heldPart(*state, device).count());
        if (!isRagged(*state)) {
          break;  // all hold as many
        }
      }
    }
    return bound;
  }

  // The cost of moving the operands of a window, or its result, whichever is less. It is infinite if a rank would hold more of an operand
  // than allowed.
  double costOfMoving(Expr* e) {
    TensorView* result = e->tensorOutput();
    const ShardState wanted = states_.state(result);
    double cost = 0;
    for (const Operand& o : operands(e)) {
      if (o.edge.relation == EdgeRelation::Comm) {
        const TensorView* from = e->input(o.position)->asTensor();
        const ShardState needed = o.edge.needed ? *o.edge.needed : ShardState::replicated(wanted.mesh, from->shape());
        if (!moved_.contains({from->id(), needed.toString()})) {
          const RedistributionPlan& plan = plans_.plan(fusion_, o.edge.held, needed);
          const bool fits = plan.peakState <= boundBetween(o.edge.held, wanted);
          cost += fits ? plan.cost : std::numeric_limits<double>::infinity();
        }
      }
    }
    const ShardState natural = naturalState(e);
    setShardState(result, natural);
    if (!needsWork(e)) {
      cost = std::min(cost, plans_.plan(fusion_, natural, wanted).cost);
    }
    setShardState(result, wanted);
    return cost;
  }

  // Bytes received per rank if the operands are moved; -1 if the needed part of one is no rectangle.
  int64_t costBefore(const Expr* e) const {
    int64_t bytes = 0;
    for (const Operand& o : operands(e)) {
      if (!o.edge.needed) {
        return -1;
      }
      if (o.edge.relation == EdgeRelation::Comm) {
        const TensorView* tv = e->input(o.position)->asTensor();
        bytes += plans_.plan(fusion_, o.edge.held, *o.edge.needed).elements * dataTypeSize(tv->dtype());
      }
    }
    return bytes;
  }

  // The state of the result if no operand moves.
  ShardState naturalState(const Expr* e) const {
    const TensorView* result = e->tensorOutput();
    const ShardState wanted = states_.state(result);
    ShardState state = withWholeDims(wanted);
    for (const Operand& o : operands(e)) {
      propagateForward(e, o.position, o.edge.held, result, state);
    }
    addAxes(state, wanted);
    return state;
  }

  // The result with its dim whole on every rank, from which the wanted part is taken.
  void makeWhole(Expr* e) {
    TensorView* result = e->tensorOutput();
    const ShardState wanted = states_.state(result);
    ShardState whole = wanted;
    const int64_t axis = e->attributes().dim;
    whole.dims[axis] = DigitList::whole(axis, result->shape()[axis]);
    setShardState(result, whole);
    moveResult(e, wanted);
  }

  void moveResult(Expr* e, const ShardState& wanted) {
    TensorView* result = e->tensorOutput();
    TensorView* moved = redistributed(result, wanted);
    fusion_.replaceUses(result, moved);
    remember(moved->definition());
    moved->setUserSharded(result->isUserSharded());
    result->setUserSharded(false);
  }

  // With sizes as symbols, a split that is not known to divide hides the digits of a dim.
  [[noreturn]] static void throwNotRectangle(const Expr* e) {
    const std::string why =
        fmt::format("[decompose-reshardings] the part that {} needs is not a rectangle", e->tensorOutput()->toString());
    if (!hasConstantExtents(*e)) {
      throw NotConstantError(why);
    }
    throwInternalError(why);
  }

  void moveOperands(Expr* e) {
    for (const Operand& o : operands(e)) {
      if (o.edge.relation != EdgeRelation::Comm) {
        continue;
      }
      if (!o.edge.needed) {
        throwNotRectangle(e);
      }
      TensorView* from = e->input(o.position)->asTensor();
      TensorView*& to = moved_[{from->id(), o.edge.needed->toString()}];
      if (to == nullptr) {
        to = redistributed(from, *o.edge.needed);
      }
      fusion_.replaceInput(e, o.position, to);
    }
  }

  void remember(Expr* e) {
    TensorView* to = e->tensorOutput();
    moved_.try_emplace({e->input(0)->id(), states_.state(to).toString()}, to);
  }

  Fusion& fusion_;
  PlanMemo& plans_;
  ShardStateMemo& states_;
  std::map<std::pair<int64_t, std::string>, TensorView*> moved_;  // (tensor, needed state) -> redistributed
};

}  // namespace

bool decomposeReshardings(Fusion& fusion, PassContext& context) {
  const bool placed = placeWindowsWithReaders(fusion, context.memo<PlanMemo>());
  return decomposeReshardings(fusion, context, [](const Expr*) { return true; }) || placed;
}

bool decomposeReshardings(Fusion& fusion, PassContext& context, const std::function<bool(const Expr*)>& among) {
  return Decomposition(fusion, context.memo<PlanMemo>(), context.memo<ShardStateMemo>()).run(among);
}

}  // namespace meshfuse
