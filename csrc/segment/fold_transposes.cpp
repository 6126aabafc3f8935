#include "segment/fold_transposes.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "segment/local_context.h"

namespace meshfuse {

bool foldTransposes(Fusion& fusion, LocalContext& context) {
  std::map<int64_t, Layout>& layouts = context.layouts;
  bool changed = false;
  for (const Expr* e : fusion.exprs()) {
    if (e->kind() != ExprKind::Permute || e->output()->isFusionOutput() || layouts.contains(e->output()->id())) {
      continue;
    }
    const TensorView* in = e->tensorInputs()[0];
    const std::vector<Expr*> uses = fusion.uses(e->output());
    if (contains(std::views::values(fusion.aliases()), in) ||
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
