#include "segment/duplicate_cheap.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// It follows a reduction: a copy would run the epilogue of that step twice.
bool readsReduction(const Expr& e) {
  return std::ranges::any_of(e.tensorInputs(), [](const TensorView* tv) {
    return tv->definition() != nullptr && tv->definition()->kind() == ExprKind::Reduce;
  });
}

}  // namespace

bool duplicateCheap(Fusion& fusion, LocalContext&) {
  bool changed = false;
  const std::vector<Expr*> exprs = fusion.exprs();
  for (Expr* e : std::views::reverse(exprs)) {
    if (repeatOf(*e) != Repeat::Reader || !e->output()->isTensor() || e->output()->isFusionOutput()) {
      continue;
    }
    std::vector<Expr*> uses = fusion.uses(e->output());
    if (uses.size() < 2 || readsReduction(*e)) {
      continue;
    }
    for (int64_t u = 1; u < std::ssize(uses); u++) {
      FusionCloner cloner(fusion, fusion);
      for (Val* in : e->inputs()) {
        cloner.set(in, in);
      }
      Expr* copy = cloner.clone(e);
      for (const int64_t operand : uses[u]->positionsOf(e->output())) {
        fusion.replaceInput(uses[u], operand, copy->output());
      }
      changed = true;
    }
  }
  return changed;
}

}  // namespace meshfuse
