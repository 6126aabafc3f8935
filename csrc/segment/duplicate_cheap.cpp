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

// Whether the op, or one that reads it through views, is in no kernel: its operand must be in memory.
bool readsMemory(const Expr& e) {
  const View view = ruleOf(e).view;
  return ruleOf(e).executor != Executor::Kernel ||
         (view != View::No && view != View::SameType &&
          std::ranges::any_of(e.fusion().uses(e.output()), [](const Expr* use) { return readsMemory(*use); }));
}

// Whether reading the result takes no more bytes than computing it again from an operand in memory.
bool isNoLarger(const Expr& e) {
  const TensorView* out = e.tensorOutput();
  return std::ranges::any_of(e.tensorInputs(), [&](const TensorView* in) {
    return in->shape() == out->shape() && dataTypeSize(out->dtype()) <= dataTypeSize(in->dtype());
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
    const bool isStored = std::ranges::any_of(uses, [](const Expr* use) { return readsMemory(*use); });
    Val* stored = nullptr;  // the one that is read from memory
    for (int64_t u = 0; u < std::ssize(uses); u++) {
      const bool fromMemory = isStored && (isNoLarger(*e) || readsMemory(*uses[u]));
      Val* own = e->output();
      if (fromMemory && stored != nullptr) {
        own = stored;
      } else if (u > 0) {
        FusionCloner cloner(fusion, fusion);
        for (Val* in : e->inputs()) {
          cloner.set(in, in);
        }
        own = cloner.clone(e)->output();
      }
      if (fromMemory) {
        stored = own;
      }
      for (const int64_t operand : uses[u]->positionsOf(e->output())) {
        if (own != e->output()) {
          fusion.replaceInput(uses[u], operand, own);
          changed = true;
        }
      }
    }
  }
  return changed;
}

}  // namespace meshfuse
