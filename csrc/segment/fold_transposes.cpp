#include "segment/fold_transposes.h"

#include <algorithm>
#include <optional>

#include "ir/fusion.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

std::optional<Layout> layoutOf(const TensorView* tv, const std::map<int, Layout>& layouts) {
  if (auto it = layouts.find(tv->id()); it != layouts.end()) {
    return it->second;
  }
  Layout result;
  int64_t stride = 1;
  std::vector<IntExpr> shape = tv->shape();
  for (size_t d = shape.size(); d-- > 0;) {
    if (!shape[d].isConst()) {
      return std::nullopt;
    }
    result.strides.insert(result.strides.begin(), stride);
    stride *= shape[d].constValue();
  }
  return result;
}

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
    std::optional<Layout> from = layoutOf(in, layouts);
    if (!from || isOverwritten(fusion, in) || std::any_of(uses.begin(), uses.end(), [](const Expr* use) {
          return use->kind() != ExprKind::Matmul && use->kind() != ExprKind::Linear;
        })) {
      continue;
    }
    Layout to{.alignment = from->alignment};
    for (int dim : e->attributes().order) {
      to.strides.push_back(from->strides[static_cast<size_t>(dim)]);
    }
    layouts[e->output()->id()] = std::move(to);
    if (std::all_of(uses.begin(), uses.end(), [&](const Expr* use) { return context.isLibraryCall(*use); })) {
      context.views.insert(e->output()->id());
      changed = true;
    } else {
      layouts.erase(e->output()->id());
    }
  }
  return changed;
}

}  // namespace meshfuse
