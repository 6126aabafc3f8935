#include "segment/fold_transposes.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

// Whether the strides of a tensor are known: all its sizes but the outermost one are.
bool hasConstantStrides(const TensorView* tv, const std::map<int64_t, Layout>& layouts) {
  const std::vector<IntExpr> shape = tv->shape();
  return layouts.contains(tv->id()) ||
         std::ranges::all_of(shape | std::views::drop(1), [](const IntExpr& e) { return e.isConst(); });
}

}  // namespace

bool foldTransposes(Fusion& fusion, LocalContext& context) {
  std::map<int64_t, Layout>& layouts = context.layouts;
  bool changed = false;
  for (const Expr* e : fusion.exprs()) {
    if (e->kind() != ExprKind::Permute || e->output()->isFusionOutput() || layouts.contains(e->output()->id())) {
      continue;
    }
    const TensorView* in = e->tensorInputs()[0];
    const std::vector<Expr*> uses = fusion.uses(e->output());
    if (contains(std::views::values(fusion.aliases()), in) || !hasConstantStrides(in, layouts) ||
        !std::ranges::all_of(uses, [](const Expr* use) { return isContraction(*use); })) {
      continue;
    }
    const Layout from = layoutOf(in, layouts);
    Layout to{.strides = mapped(e->attributes().order, [&](int64_t dim) { return from.strides[dim]; }),
              .alignment = from.alignment};
    layouts[e->output()->id()] = std::move(to);
    if (std::ranges::all_of(
            uses, [&](Expr* use) { return context.judge(context.groupOf(fusion, {use})).judgement != nullptr; })) {
      context.views.insert(e->output()->id());
      changed = true;
    } else {
      layouts.erase(e->output()->id());
    }
  }
  return changed;
}

}  // namespace meshfuse
