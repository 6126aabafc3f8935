#include "segment/fold_transposes.h"

#include <algorithm>

#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

bool isOverwritten(const Fusion& fusion, const TensorView* tv) {
  return std::any_of(fusion.aliases().begin(), fusion.aliases().end(), [&](const auto& a) { return a.second == tv; });
}

}  // namespace

bool foldTransposes(Fusion& fusion, LocalContext& context) {
  std::map<int, Layout>& layouts = context.layouts;
  bool changed = false;
  for (const Expr* e : fusion.exprs()) {
    if (e->kind() != ExprKind::Permute || e->output()->isFusionOutput() || layouts.contains(e->output()->id())) {
      continue;
    }
    const TensorView* in = e->tensorInputs()[0];
    std::vector<Expr*> uses = fusion.uses(e->output());
    if (isOverwritten(fusion, in) ||
        std::any_of(uses.begin(), uses.end(), [](const Expr* use) { return !isContraction(*use); })) {
      continue;
    }
    const Layout from = layoutOf(in, layouts);
    Layout to{.alignment = from.alignment};
    for (int dim : e->attributes().order) {
      to.strides.push_back(from.strides[dim]);
    }
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
