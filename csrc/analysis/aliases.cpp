#include "analysis/aliases.h"

#include <algorithm>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// Whether `outer` lies right outside of `inner` in the operand's memory without a gap, dims of extent 1 aside.
bool adjacentInMemory(const TensorView& p, const IterDomain* outer, const IterDomain* inner) {
  std::vector<IterDomain*> order = p.getAllocationDomain();
  auto at = std::find(order.begin(), order.end(), outer);
  if (at == order.end() || !p.contiguity()[static_cast<size_t>(at - order.begin())]) {
    return false;
  }
  do {
    at++;
  } while (at != order.end() && (*at)->extent().isConst(1) && *at != inner);
  return at != order.end() && *at == inner;
}

// First and last dim of the operand that a dim of the result's root -> logical part is made of, in memory order.
struct Run {
  const IterDomain* first = nullptr;
  const IterDomain* last = nullptr;
  bool whole = true;  // not a part of a split
};

bool reshapeIsView(const Expr& e) {
  const TensorView& p = *e.input(0)->asTensor();
  const TensorView& c = *e.tensorOutput();
  std::vector<IterDomain*> dims = p.noReductions();
  const std::vector<IterDomain*>& root = c.getRootDomain();
  for (const IterDomain* d : c.getLogicalDomain()) {
    bool connected =
        d->definition() != nullptr || d->isBroadcast() || std::find(root.begin(), root.end(), d) != root.end();
    if (d->isSymbolic() || !connected) {
      return false;
    }
  }
  std::vector<std::pair<const IterDomain*, Run>> runs;
  for (size_t k = 0; k < root.size(); k++) {
    runs.emplace_back(root[k], Run{dims[k], dims[k]});
  }
  auto runOf = [&](const IterDomain* id) -> Run {
    auto it = std::find_if(runs.begin(), runs.end(), [&](const auto& r) { return r.first == id; });
    return it == runs.end() ? Run{} : it->second;
  };
  for (const IdExpr* t : transformsBetween(root, c.getLogicalDomain())) {
    Run in = runOf(t->in[0]);
    if (t->kind == IdExprKind::Split) {
      runs.emplace_back(t->out[0], Run{in.first, in.last, false});
      runs.emplace_back(t->out[1], Run{in.first, in.last, false});
    } else if (t->kind == IdExprKind::Merge) {
      Run inner = runOf(t->in[1]);
      if (!in.whole || !inner.whole || !adjacentInMemory(p, in.last, inner.first)) {
        return false;
      }
      runs.emplace_back(t->out[0], Run{in.first, inner.last, true});
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

bool isView(const Expr& expr) {
  const View view = ruleOf(expr).view;
  if (view == View::No || !expr.input(0)->isTensor() || !expr.output()->isTensor()) {
    return false;
  }
  switch (view) {
    case View::InOrder:
    case View::Reordered:
    case View::Strided:
      return true;
    case View::Contiguous:
      return reshapeIsView(expr);
    case View::SameType:
      return expr.input(0)->dtype() == expr.output()->dtype();
    case View::No:
      break;
  }
  return false;
}

Aliases::Aliases(const Fusion& fusion) : fusion_(fusion), base_(static_cast<size_t>(fusion.numVals()), nullptr) {
  for (TensorView* t : fusion.tensors(ExprSet::All)) {
    const Expr* e = t->definition();
    bool view = e != nullptr && isView(*e);
    base_[static_cast<size_t>(t->id())] = view ? base_[static_cast<size_t>(e->input(0)->id())] : t;
  }
}

TensorView* Aliases::base(const TensorView* tensor) const {
  TensorView* found = base_.at(static_cast<size_t>(tensor->id()));
  invariant(found != nullptr, "[aliases] {} was made after the analysis", tensor->toString());
  return found;
}

std::vector<TensorView*> Aliases::outputsThatViewInputs() const {
  std::vector<TensorView*> found;
  for (Val* v : fusion_.outputs()) {
    TensorView* t = v->asTensor();
    if (base(t)->isFusionInput()) {
      found.push_back(t);
    }
  }
  return found;
}

}  // namespace meshfuse
