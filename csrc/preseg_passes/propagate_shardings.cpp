#include "preseg_passes/propagate_shardings.h"

#include <map>

#include "ir/fusion.h"
#include "multidevice/sharding/carry.h"

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

class Propagation {
 public:
  explicit Propagation(Fusion& fusion) : exprs_(fusion.exprs()) {
    for (TensorView* tv : fusion.tensors()) {
      if (tv->hasDeviceMesh()) {
        states_[tv->id()] = shardState(tv);
      } else if (!tv->isFusionInput()) {
        free_[tv->id()] = tv;
      }
    }
  }

  // Meshes first, so that axes have a place to go; then axes to a fixpoint.
  bool run() {
    spreadMeshes();
    while (forward() || backward()) {
    }
    bool changed = false;
    for (const auto& [id, tv] : free_) {
      auto state = states_.find(id);
      if (state != states_.end()) {
        setShardState(tv, state->second);
        changed = true;
      }
    }
    return changed;
  }

 private:
  bool isFree(const Val* val) const { return free_.count(val->id()) > 0; }
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

  bool forward() {
    bool changed = false;
    for (const Expr* e : exprs_) {
      for (Val* out : e->outputs()) {
        if (!out->isTensor() || !isFree(out) || find(out) == nullptr) {
          continue;
        }
        for (int operand : operandOrder(e)) {
          const ShardState* from = e->input(operand)->isTensor() ? find(e->input(operand)) : nullptr;
          if (from != nullptr) {
            changed |= carryForward(e, operand, *from, out->asTensor(), *find(out));
          }
        }
      }
    }
    return changed;
  }

  bool backward() {
    bool changed = false;
    for (auto e = exprs_.rbegin(); e != exprs_.rend() && !changed; ++e) {
      for (Val* out : (*e)->outputs()) {
        const ShardState* from = out->isTensor() ? find(out) : nullptr;
        for (size_t k = 0; from != nullptr && k < (*e)->inputs().size(); k++) {
          Val* in = (*e)->input(static_cast<int>(k));
          if (in->isTensor() && isFree(in) && find(in) != nullptr) {
            changed |= carryBackward(*e, out->asTensor(), *from, static_cast<int>(k), *find(in));
          }
        }
      }
    }
    return changed;
  }

  std::vector<Expr*> exprs_;
  std::map<int, TensorView*> free_;
  std::map<int, ShardState> states_;
};

}  // namespace

bool propagateShardings(Fusion& fusion, PassContext& /*context*/) { return Propagation(fusion).run(); }

}  // namespace meshfuse
