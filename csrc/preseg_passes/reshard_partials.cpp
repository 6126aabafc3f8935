#include "preseg_passes/reshard_partials.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <ranges>
#include <type_traits>
#include <vector>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ir/reshape.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
#include "ops/add_view.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

// A finite number other than zero: with zero, an infinity or what is not known, x / 0 of a sum would be 0 / 0 of a contribution.
bool isPlainNumber(const Val* val) {
  const auto plain = [](auto number) {
    if constexpr (std::is_same_v<decltype(number), int64_t> || std::is_same_v<decltype(number), double>) {
      return number != 0 && std::isfinite(static_cast<double>(number));
    }
    return false;
  };
  return std::visit(plain, val->constant());
}

bool widens(const Expr* e) {
  const DataType from = e->tensorInputs()[0]->dtype();
  const DataType to = e->output()->dtype();
  return isFloatingPoint(from) && isFloatingPoint(to) && dataTypeSize(to) > dataTypeSize(from);
}

// Whether `e` maps the contributions to values whose sum is, but for rounding, the value of the sum. Quotients of integers are truncated.
bool keepsSum(const Expr* e) {
  if (ruleOf(*e).elements == Elements::Moved) {
    return true;
  }
  const DataType type = e->output()->dtype();
  const bool arePlain =
      std::ranges::all_of(e->inputs(), [](const Val* v) { return v->isTensor() || isPlainNumber(v); });
  return dataTypeSize(type) >= 4 && arePlain && (e->kind() != ExprKind::Cast || widens(e)) &&
         (e->attributes().point != PointOp::Div || isFloatingPoint(type));
}

// The state of contributions after an op whose first root dims are the dims of its operand.
TensorView* shaped(TensorView* partial, const Expr* op) {
  Fusion& fusion = partial->fusion();
  const int64_t at = partial->partialDim();
  ExprAttributes attributes = op->attributes();
  std::function<std::vector<IterDomain*>(Fusion&, const std::vector<IterDomain*>&)> connect;
  std::vector<IntExpr> extents = op->tensorOutput()->shape();
  const IntExpr contributions = partial->shape()[at];
  std::vector<Dim> root = dimsOf(partial);
  switch (op->kind()) {
    case ExprKind::Permute:
      for (int64_t& dim : attributes.order) {
        dim += dim >= at ? 1 : 0;
      }
      attributes.order.insert(attributes.order.begin(), at);
      connect = [&](Fusion&, const std::vector<IterDomain*>& ids) {
        return mapped(attributes.order, [&](int64_t old) { return ids[old]; });
      };
      break;
    case ExprKind::Reshape:
      if (at != 0) {
        return nullptr;
      }
      extents.insert(extents.begin(), contributions);
      connect = [&](Fusion& f, const std::vector<IterDomain*>& ids) { return connectReshape(f, ids, extents); };
      break;
    case ExprKind::Slice:
      attributes.starts.insert(attributes.starts.begin() + at, 0);
      attributes.stops.insert(attributes.stops.begin() + at, contributions);
      attributes.steps.insert(attributes.steps.begin() + at, 1);
      return addSlice(partial, attributes.starts, attributes.stops, attributes.steps);
    default: {  // Reduce
      const std::vector<IterDomain*>& reduced = op->tensorOutput()->getRootDomain();
      for (int64_t k = 0; k < std::ssize(reduced); k++) {
        root[k + (k >= at ? 1 : 0)].type = reduced[k]->iterType();
      }
      return fusion.addOp(ExprKind::Reduce, {partial}, op->output()->dtype(), root, attributes);
    }
  }
  TensorView* out = fusion.tensorFromRoot(partial->dtype(), root, connect);
  fusion.addExpr(op->kind(), {partial}, {out}, attributes);
  return out;
}

// Moves `e` after the first op of the chain that follows (each read by the next alone) whose result is cheaper to combine.
bool delay(Fusion& fusion, PlanMemo& plans, Expr* e) {
  TensorView* partial = e->input(0)->asTensor();
  TensorView* at = e->tensorOutput();
  const int64_t now = costOf(plans, e).bytes;
  std::vector<Expr*> made;
  std::vector<Expr*> passed;
  while (fusion.uses(at).size() == 1 && isMovable(at) && !at->hasAllocation() && isLinear(fusion.uses(at)[0])) {
    Expr* op = fusion.uses(at)[0];
    TensorView* next = ofContributions(op, partial);
    if (next == nullptr) {
      break;
    }
    made.push_back(next->definition());
    TensorView* result = op->tensorOutput();
    if (costOf(plans, shardState(next), shardState(result), next).bytes < now) {
      TensorView* combined = combine(next, shardState(result));
      fusion.removeExpr(op);
      takePlace(result, combined);
      for (Expr* old : std::views::reverse(passed)) {
        fusion.removeExpr(old);
      }
      fusion.removeExpr(e);
      return true;
    }
    passed.push_back(op);
    partial = next;
    at = result;
  }
  for (Expr* op : std::views::reverse(made)) {
    fusion.removeExpr(op);
  }
  return false;
}

}  // namespace

bool isLinear(const Expr* e) {
  if (e == nullptr || e->tensorInputs().size() != 1 || !e->output()->isTensor()) {
    return false;
  }
  const TensorView* in = e->tensorInputs()[0];
  const TensorView* out = e->tensorOutput();
  return keepsContributions(*e) && keepsSum(e) && out->hasDeviceMesh() && in->getDeviceMesh() == out->getDeviceMesh() &&
         !in->isPartial() && !out->isPartial();
}

TensorView* ofContributions(const Expr* op, TensorView* partial) {
  Fusion& fusion = partial->fusion();
  const ShardState before = shardState(partial);
  if (ruleOf(*op).form == OpForm::Pointwise) {
    std::vector<Val*> operands = op->inputs();
    std::ranges::replace_if(
        operands, [](const Val* v) { return v->isTensor(); }, partial);
    return placedOp(op->kind(), operands, op->output()->dtype(), dimsOf(partial), before, op->attributes());
  }
  TensorView* out = shaped(partial, op);
  if (out == nullptr) {
    return nullptr;
  }
  Expr* made = out->definition();
  if (out->isPartial()) {
    ShardState state = ShardState::replicated(before.mesh, mapped(stateDims(out), &IterDomain::extent));
    state.partial = before.partial;
    propagateForward(made, 0, before, out, state);
    setShardState(out, state);
    if (edgeRelation(made, 0, out).relation != EdgeRelation::Comm) {
      return out;
    }
  }
  fusion.removeExpr(made);
  return nullptr;
}

bool delayPartialSums(Fusion& fusion, PassContext& context) {
  bool changed = false;
  for (const int64_t id : idsOf(fusion, addsContributions)) {
    changed |= delay(fusion, context.memo<PlanMemo>(), fusion.expr(id));
  }
  return changed;
}

}  // namespace meshfuse
