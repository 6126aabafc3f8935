#include "preseg_passes/reshard_edges.h"

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

bool isCheaper(const ReshardCost& a, const ReshardCost& b) { return a.bytes < b.bytes; }
bool costsNoMore(const ReshardCost& a, const ReshardCost& b) {
  return std::tie(a.bytes, a.calls) <= std::tie(b.bytes, b.calls);
}

bool isRepeatable(const Expr* e) { return repeatOf(*e) != Repeat::No && e->output()->isTensor(); }

// Reads one tensor, once, and may shrink it.
bool canPass(const Expr* e) {
  return (isRepeatable(e) || e->kind() == ExprKind::Reduce) && e->tensorInputs().size() == 1 &&
         e->output()->isTensor() && !e->tensorOutput()->isPartial();
}

class EdgeRewrites {
 public:
  EdgeRewrites(Fusion& fusion, PlanMemo& plans, ShardStateMemo& states)
      : fusion_(fusion), plans_(plans), states_(states) {}

  bool run() {
    bool any = false;
    for (bool changed = true; changed;) {
      changed = merge();
      for (const int64_t id : idsOf(fusion_, isOneMeshReshard)) {
        Expr* e = fusion_.expr(id);
        changed |= e != nullptr && (compose(e) || narrow(e) || sink(e) || hoist(e));
      }
      any |= changed;
    }
    return any;
  }

 private:
  // Merges two redistributions of one tensor to one state.
  bool merge() {
    bool changed = false;
    std::map<std::tuple<int64_t, std::string, ReduceOp>, TensorView*> known;
    for (Expr* e : filtered(fusion_.exprs(), isOneMeshReshard)) {
      TensorView* to = e->tensorOutput();
      TensorView*& first = known[{e->input(0)->id(), states_.state(to).toString(), e->attributes().reduce}];
      if (first == nullptr) {
        first = to;
      } else if (isMovable(to) && !to->hasAllocation()) {
        fusion_.replaceUses(to, first);
        fusion_.removeExpr(e);
        changed = true;
      }
    }
    return changed;
  }

  bool compose(Expr* e) {
    TensorView* middle = e->input(0)->asTensor();
    Expr* before = middle->definition();
    if (before == nullptr || !isOneMeshReshard(before) || !isMovable(middle)) {
      return false;
    }
    TensorView* from = before->input(0)->asTensor();
    TensorView* to = e->tensorOutput();
    const bool shared = fusion_.uses(middle).size() > 1;
    ReshardCost apart = costOf(plans_, e);
    if (!shared) {
      apart += costOf(plans_, before);
    }
    const ReshardCost together = costOf(plans_, states_.state(from), states_.state(to), from);
    if (shared ? !isCheaper(together, apart) : !costsNoMore(together, apart)) {
      return false;
    }
    if (!from->isPartial()) {
      fusion_.replaceInput(e, 0, from);
    } else {
      TensorView* combined = combine(from, states_.state(to));
      fusion_.removeExpr(e);
      takePlace(to, combined);
    }
    if (!shared) {
      fusion_.removeExpr(before);
    }
    return true;
  }

  // The part that all readers need, if they all need the same part and not the whole.
  std::optional<ShardState> neededByAll(const TensorView* tv) const {
    std::optional<ShardState> needed;
    for (const Expr* use : fusion_.uses(tv)) {
      if (use->kind() == ExprKind::Redistribute || !use->output()->isTensor()) {
        return std::nullopt;
      }
      for (const int64_t operand : use->positionsOf(tv)) {
        const Edge edge = edgeRelation(use, operand, use->tensorOutput(), states_);
        if (edge.relation != EdgeRelation::Local || !edge.needed || (needed && !provenEqual(*needed, *edge.needed))) {
          return std::nullopt;
        }
        needed = edge.needed;
      }
    }
    return needed;
  }

  bool narrow(Expr* e) {
    TensorView* to = e->tensorOutput();
    if (!isMovable(to)) {
      return false;
    }
    const std::optional<ShardState> needed = neededByAll(to);
    const TensorView* from = e->input(0)->asTensor();
    if (!needed || !usesWholeAxes(*needed) ||
        !isCheaper(costOf(plans_, states_.state(from), *needed, from), costOf(plans_, e))) {
      return false;
    }
    setShardState(to, *needed);
    return true;
  }

  // Moves `e` after the first op of the chain that follows (each read by the next alone) whose result is cheaper to move.
  bool sink(Expr* e) {
    TensorView* from = e->input(0)->asTensor();
    TensorView* middle = e->tensorOutput();
    if (!isMovable(middle) || from->isPartial()) {
      return false;
    }
    const ReshardCost now = costOf(plans_, e);
    std::vector<std::pair<TensorView*, ShardState>> passed;  // with their states before
    TensorView* at = middle;
    for (bool goesOn = true; goesOn;) {
      const std::vector<Expr*> uses = fusion_.uses(at);
      if (uses.size() != 1 || !isMovable(at) || !canPass(uses[0]) ||
          !(uses[0]->tensorOutput()->getDeviceMesh() == from->getDeviceMesh())) {
        break;
      }
      Expr* op = uses[0];
      const int64_t operand = op->tensorPositions()[0];
      if (at == middle) {
        fusion_.replaceInput(op, operand, from);
      }
      TensorView* result = op->tensorOutput();
      const ShardState wanted = states_.state(result);
      ShardState natural = ShardState::replicated(wanted.mesh, result->shape());
      propagateForward(op, operand, states_.state(op->input(operand)->asTensor()), result, natural);
      passed.emplace_back(result, wanted);
      setShardState(result, natural);
      const Edge edge = edgeRelation(op, operand, result, states_);
      goesOn = edge.relation != EdgeRelation::Comm && edge.needed.has_value();
      if (goesOn && isCheaper(costOf(plans_, natural, wanted, result), now)) {
        takePlace(result, redistributed(result, wanted));
        result->setUserSharded(false);
        fusion_.removeExpr(e);
        return true;
      }
      at = result;
    }
    for (const auto& [tv, state] : passed) {
      setShardState(tv, state);
    }
    if (!passed.empty()) {
      Expr* first = passed[0].first->definition();
      fusion_.replaceInput(first, first->tensorPositions()[0], middle);
    }
    return false;
  }

  static bool canRepeat(const TensorView* tv) {
    const Expr* op = tv->definition();
    return op != nullptr && isRepeatable(op) && isMovable(tv) && !tv->isPartial() && tv->fusion().uses(tv).size() == 1;
  }

  // The cost of computing `tv` at `wanted` from operands that are moved, or are computed in the same way.
  std::optional<ReshardCost> costToRepeat(TensorView* tv, const ShardState& wanted, int64_t depth = 0) {
    constexpr int64_t kMaxDepth = 8;
    if (depth == kMaxDepth || !canRepeat(tv)) {
      return std::nullopt;
    }
    const ShardState before = states_.state(tv);
    setShardState(tv, wanted);
    std::optional<ReshardCost> cost = ReshardCost{};
    const Expr* op = tv->definition();
    for (const int64_t operand : op->tensorPositions()) {
      const Edge edge = edgeRelation(op, operand, tv, states_);
      const bool moves = edge.relation == EdgeRelation::Comm;
      if (!edge.needed || !(edge.held.mesh.empty() || edge.held.mesh == wanted.mesh) ||
          (moves && !usesWholeAxes(*edge.needed))) {
        cost = std::nullopt;
        break;
      }
      if (moves) {
        *cost += costToHave(op->input(operand)->asTensor(), *edge.needed, depth + 1);
      }
    }
    setShardState(tv, before);
    return cost;
  }

  ReshardCost costToMove(const TensorView* tv, const ShardState& wanted) const {
    return knownReshard(tv, wanted) != nullptr ? ReshardCost{} : costOf(plans_, states_.state(tv), wanted, tv);
  }

  ReshardCost costToHave(TensorView* tv, const ShardState& wanted, int64_t depth) {
    const ReshardCost moved = costToMove(tv, wanted);
    const std::optional<ReshardCost> repeated = costToRepeat(tv, wanted, depth);
    return repeated && isCheaper(*repeated, moved) ? *repeated : moved;
  }

  // Builds `tv` at `wanted` in the way that costToHave priced.
  TensorView* have(TensorView* tv, const ShardState& wanted, int64_t depth) {
    const std::optional<ReshardCost> repeated = costToRepeat(tv, wanted, depth);
    if (repeated && isCheaper(*repeated, costToMove(tv, wanted))) {
      repeat(tv, wanted, depth);
      return tv;
    }
    TensorView* known = knownReshard(tv, wanted);
    return known != nullptr ? known : redistributed(tv, wanted);
  }

  void repeat(TensorView* tv, const ShardState& wanted, int64_t depth) {
    setShardState(tv, wanted);
    Expr* op = tv->definition();
    for (const int64_t operand : op->tensorPositions()) {
      const Edge edge = edgeRelation(op, operand, tv, states_);
      if (edge.relation == EdgeRelation::Comm) {
        fusion_.replaceInput(op, operand, have(op->input(operand)->asTensor(), *edge.needed, depth + 1));
      }
    }
  }

  // Moves a redistribution before the ops that compute its operand, as far up as that is cheaper.
  bool hoist(Expr* e) {
    TensorView* from = e->input(0)->asTensor();
    TensorView* to = e->tensorOutput();
    const ShardState wanted = states_.state(to);
    const std::optional<ReshardCost> repeated = costToRepeat(from, wanted);
    if (!repeated || !isCheaper(*repeated, costOf(plans_, e))) {
      return false;
    }
    repeat(from, wanted, 0);
    fusion_.removeExpr(e);
    takePlace(to, from);
    return true;
  }

  Fusion& fusion_;
  PlanMemo& plans_;
  ShardStateMemo& states_;
};

}  // namespace

bool rewriteReshardEdges(Fusion& fusion, PassContext& context) {
  return EdgeRewrites(fusion, context.memo<PlanMemo>(), context.memo<ShardStateMemo>()).run();
}

}  // namespace meshfuse
