#include "preseg_passes/propagate_shardings.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "analysis/pass_context.h"
#include "ir/fusion.h"
#include "multidevice/sharding/axis_facts.h"
#include "multidevice/sharding/carry.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

namespace {

int64_t bytesOf(const Val* val) {
  int64_t bytes = dataTypeSize(val->dtype());
  for (const IntExpr& extent : val->asTensor()->shape()) {
    bytes *= extent.isConst() ? extent.constValue() : 1;
  }
  return bytes;
}

// Operands in the order in which their axes count. Where the weight and the activations want one axis for different dims, the
// smaller of the two is cheaper to gather, so the larger comes first; the weight where they are equal.
std::vector<int> operandOrder(const Expr* expr) {
  if (expr->kind() == ExprKind::Linear || expr->kind() == ExprKind::Matmul) {
    const bool activationsFirst = bytesOf(expr->input(0)) > bytesOf(expr->input(1));
    std::vector<int> order = activationsFirst ? std::vector<int>{0, 1} : std::vector<int>{1, 0};
    if (expr->inputs().size() == 3) {
      order.insert(activationsFirst ? order.end() : order.begin() + 1, 2);
    }
    return order;
  }
  std::vector<int> order(expr->inputs().size());
  for (size_t k = 0; k < order.size(); k++) {
    order[k] = static_cast<int>(k);
  }
  return order;
}

bool sameDigits(const ShardState& a, const ShardState& b) {
  return std::ranges::equal(a.dims, b.dims, [](const DigitList& x, const DigitList& y) {
    return x.isOpaque() == y.isOpaque() && std::ranges::equal(x.digits(), y.digits());
  });
}

// What the user placed is told from what propagation places, once: later all tensors have a mesh.
bool pinWhatIsPlaced(const Fusion& fusion) {
  const std::vector<TensorView*> tensors = fusion.tensors();
  if (std::ranges::any_of(tensors, &TensorView::isPinned)) {
    return false;
  }
  bool changed = false;
  for (TensorView* tv : tensors) {
    tv->setPinned(tv->hasDeviceMesh());
    changed |= tv->isPinned();
  }
  return changed;
}

// The axes travel by a worklist of exprs: forward first, in their order; then backward, from the last one on, one expr at a time.
// An expr is looked at again when the state of an operand or a result has changed.
class Propagation {
 public:
  Propagation(Fusion& fusion, const Prover& facts) : fusion_(fusion), exprs_(fusion.exprs()), facts_(facts) {
    bool symbolic = false;
    bool awaits = false;
    for (TensorView* tv : fusion.tensors()) {
      symbolic |= tv->getDeviceMesh().isSymbolic();
      awaits |= std::ranges::any_of(tv->getLogicalDomain(), [](const IterDomain* id) { return id->isSymbolic(); });
      if (tv->hasDeviceMesh()) {
        states_[tv->id()] = shardState(tv, facts_);
        if (std::ranges::any_of(tv->getLoopDomain(), [](auto* id) { return id->isDeviceDim() && id->isReduction(); })) {
          bindsReduced_.push_back(tv);
        }
      } else if (!tv->isFusionInput()) {
        free_[tv->id()] = tv;
      }
    }
    leavesWhole_ = symbolic && awaits;
    for (size_t k = 0; k < exprs_.size(); k++) {
      places_[exprs_[k]->id()] = k;
    }
    for (const auto& [output, input] : fusion.aliases()) {
      if (isFree(output)) {
        aliased_.insert(output->id());
        if (input->asTensor()->hasDeviceMesh()) {
          states_[output->id()] = shardState(input->asTensor(), facts_);
        }
      }
    }
  }

  // Meshes first, so that axes have a place to go; then axes to a fixpoint.
  bool run() {
    if (free_.empty() && bindsReduced_.empty()) {
      return false;
    }
    spreadMeshes();
    for (size_t k = 0; k < exprs_.size(); k++) {
      forward_.insert(k);
      backward_.insert(k);
    }
    while (!forward_.empty() || !backward_.empty()) {
      if (!forward_.empty()) {
        forward(exprs_[*forward_.begin()]);
      } else {
        backward(exprs_[*backward_.rbegin()]);
      }
    }
    bool changed = false;
    for (TensorView* tv : bindsReduced_) {
      const ShardState& state = states_.at(tv->id());
      if (std::ranges::none_of(state.dims, [](const DigitList& dim) { return dim.isOpaque(); })) {
        setShardState(tv, state, facts_);
        changed = true;
      }
    }
    for (const auto& [id, tv] : free_) {
      auto state = states_.find(id);
      if (state != states_.end() && (!leavesWhole_ || state->second.isSharded())) {
        setShardState(tv, state->second, facts_);
        changed = true;
      }
    }
    return changed;
  }

  // Where operands wanted different shardings of a result: what was chosen and why, by id.
  const std::map<int, std::string>& reasons() const { return reasons_; }

 private:
  bool isFree(const Val* val) const { return free_.count(val->id()) > 0; }
  // What takes an input's memory has its sharding, and no axes if that has none.
  bool takesAxes(const Val* val) const { return isFree(val) && !aliased_.contains(val->id()); }
  ShardState* find(const Val* val) {
    auto it = states_.find(val->id());
    return it == states_.end() ? nullptr : &it->second;
  }

  bool adoptMesh(const TensorView* tv, const Val* neighbour) {
    const ShardState* state = find(neighbour);
    if (!isFree(tv) || find(tv) != nullptr || state == nullptr) {
      return false;
    }
    states_[tv->id()] = ShardState::replicated(state->mesh, tv->shape());
    return true;
  }

  void spreadMeshes() {
    for (bool changed = true; changed;) {
      changed = false;
      for (const Expr* e : exprs_) {
        for (Val* out : e->outputs()) {
          for (Val* in : e->inputs()) {
            changed |= out->isTensor() && in->isTensor() && adoptMesh(out->asTensor(), in);
          }
        }
      }
      for (auto e = exprs_.rbegin(); e != exprs_.rend(); ++e) {
        for (Val* in : (*e)->inputs()) {
          for (Val* out : (*e)->outputs()) {
            changed |= in->isTensor() && out->isTensor() && adoptMesh(in->asTensor(), out);
          }
        }
      }
    }
  }

  // Whoever reads or makes `val` looks at it again.
  void hasChanged(const Val* val) {
    if (const Expr* definition = val->definition(); definition != nullptr && places_.contains(definition->id())) {
      forward_.insert(places_.at(definition->id()));
      backward_.insert(places_.at(definition->id()));
    }
    for (const Expr* use : fusion_.uses(val)) {
      if (places_.contains(use->id())) {
        forward_.insert(places_.at(use->id()));
        backward_.insert(places_.at(use->id()));
      }
    }
  }

  void forward(const Expr* e) {
    forward_.erase(places_.at(e->id()));
    for (Val* out : e->outputs()) {
      if (!out->isTensor() || !takesAxes(out) || find(out) == nullptr) {
        continue;
      }
      ShardState grown = fromOperands(e, out->asTensor());
      if (!sameDigits(grown, *find(out))) {
        *find(out) = std::move(grown);
        hasChanged(out);
      }
    }
  }

  // The state of a result with the axes that its operands suggest.
  ShardState fromOperands(const Expr* e, const TensorView* out) {
    const std::vector<int> order = operandOrder(e);
    ShardState best = inOrder(e, out, order);
    const bool mayChoose =
        e->kind() == ExprKind::Point || e->kind() == ExprKind::Linear || e->kind() == ExprKind::Matmul;
    if (!mayChoose || order.size() < 2) {
      return best;
    }
    std::optional<int64_t> least;  // bytes, once some order gives another state
    std::vector<std::string> others;
    for (size_t k = 1; k < order.size(); k++) {
      std::vector<int> with = order;
      std::rotate(with.begin(), with.begin() + static_cast<std::ptrdiff_t>(k),
                  with.begin() + static_cast<std::ptrdiff_t>(k) + 1);
      ShardState other = inOrder(e, out, with);
      if (sameDigits(other, best)) {
        continue;
      }
      const std::string text = other.toString();
      if (std::find(others.begin(), others.end(), text) != others.end()) {
        continue;
      }
      least = least ? least : bytesMoved(e, out, best);
      const std::optional<int64_t> bytes = bytesMoved(e, out, other);
      if (!least || !bytes) {
        return best;  // sizes are not known yet
      }
      const bool cheaper = *bytes < *least;
      others.push_back(cheaper ? best.toString() : text);
      reasons_[out->id()] = fmt::format("{} takes {}, for which its operands receive {} bytes, not {}, for which {}",
                                        out->toString(), cheaper ? text : best.toString(), std::min(*bytes, *least),
                                        others.back(), std::max(*bytes, *least));
      if (cheaper) {
        best = std::move(other);
        least = bytes;
      }
    }
    return best;
  }

  ShardState inOrder(const Expr* e, const TensorView* out, const std::vector<int>& order) {
    ShardState state = *find(out);
    for (int operand : order) {
      const ShardState* from = e->input(operand)->isTensor() ? find(e->input(operand)) : nullptr;
      if (from != nullptr) {
        carryForward(e, operand, *from, out, state, facts_);
      }
    }
    return state;
  }

  // What the busiest rank receives of the operands if the result is at `state`; sizes of axes that are symbols at their hints.
  // Nothing while other sizes are symbols.
  std::optional<int64_t> bytesMoved(const Expr* e, const TensorView* out, const ShardState& state) {
    int64_t bytes = 0;
    for (size_t k = 0; k < e->inputs().size(); k++) {
      const ShardState* held =
          e->input(static_cast<int>(k))->isTensor() ? find(e->input(static_cast<int>(k))) : nullptr;
      if (held == nullptr || !(held->mesh == state.mesh)) {
        continue;
      }
      const TensorView* tv = e->input(static_cast<int>(k))->asTensor();
      const std::vector<IntExpr> shape = tv->shape();
      if (std::any_of(shape.begin(), shape.end(), [](const IntExpr& extent) { return !extent.isConst(); })) {
        return std::nullopt;
      }
      ShardState needed = ShardState::replicated(state.mesh, shape);
      carryBackward(e, out, state, static_cast<int>(k), needed, facts_);
      const std::optional<ShardState> from = atHints(*held, shape);
      const std::optional<ShardState> to = atHints(needed, shape);
      if (!from || !to) {
        return std::nullopt;
      }
      bytes += planRedistribution(*from, *to).elements * dataTypeSize(tv->dtype());
    }
    return bytes;
  }

  void backward(const Expr* e) {
    backward_.erase(places_.at(e->id()));
    for (Val* out : e->outputs()) {
      const ShardState* from = out->isTensor() ? find(out) : nullptr;
      for (size_t k = 0; from != nullptr && k < e->inputs().size(); k++) {
        Val* in = e->input(static_cast<int>(k));
        if (in->isTensor() && takesAxes(in) && find(in) != nullptr &&
            carryBackward(e, out->asTensor(), *from, static_cast<int>(k), *find(in), facts_)) {
          hasChanged(in);
        }
      }
    }
  }

  const Fusion& fusion_;
  std::vector<Expr*> exprs_;
  const Prover& facts_;
  // Tensors that no axis reached may get one when the structure of those that await their sizes is known.
  bool leavesWhole_ = false;
  // No rank has a part of what is reduced: such a binding says nothing of the result, and is dropped.
  std::vector<TensorView*> bindsReduced_;
  std::map<int, TensorView*> free_;
  std::map<int, ShardState> states_;
  std::map<int, std::string> reasons_;
  std::set<int> aliased_;         // of free_: outputs in the memory of an input
  std::map<int, size_t> places_;  // by id of an expr: where it stands in exprs_
  std::set<size_t> forward_;      // of exprs_, to be looked at
  std::set<size_t> backward_;
};

}  // namespace

bool propagateShardings(Fusion& fusion, PassContext& context) {
  const bool pinned = pinWhatIsPlaced(fusion);
  Propagation propagation(fusion, context.get<AxisFacts>().prover());
  const bool changed = propagation.run() || pinned;
  for (const auto& [id, reason] : propagation.reasons()) {
    context.remark(reason);
  }
  return changed;
}

}  // namespace meshfuse
