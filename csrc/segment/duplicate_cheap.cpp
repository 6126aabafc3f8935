#include "segment/duplicate_cheap.h"

#include <algorithm>

#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// It follows a reduction: a copy would run the epilogue of that step twice.
bool readsReduction(const Expr& e) {
  std::vector<TensorView*> ins = e.tensorInputs();
  return std::any_of(ins.begin(), ins.end(), [](const TensorView* tv) {
    return tv->definition() != nullptr && tv->definition()->kind() == ExprKind::Reduce;
  });
}

}  // namespace

bool duplicateCheap(Fusion& fusion, LocalContext&) {
  bool changed = false;
  std::vector<Expr*> exprs = fusion.exprs();
  for (auto it = exprs.rbegin(); it != exprs.rend(); ++it) {
    Expr* e = *it;
    if (repeatOf(*e) != Repeat::Reader || !e->output()->isTensor() || e->output()->isFusionOutput()) {
      continue;
    }
    std::vector<Expr*> uses = fusion.uses(e->output());
    if (uses.size() < 2 || readsReduction(*e)) {
      continue;
    }
    for (size_t u = 1; u < uses.size(); u++) {
      FusionCloner cloner(fusion, fusion);
      for (Val* in : e->inputs()) {
        cloner.set(in, in);
      }
      Expr* copy = cloner.clone(e);
      for (size_t k = 0; k < uses[u]->inputs().size(); k++) {
        if (uses[u]->input(static_cast<int>(k)) == e->output()) {
          fusion.replaceInput(uses[u], static_cast<int>(k), copy->output());
        }
      }
      changed = true;
    }
  }
  return changed;
}

}  // namespace meshfuse
