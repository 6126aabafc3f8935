#include "segment/local_context.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

Group LocalContext::groupOf(const Fusion& fusion, const std::vector<Expr*>& exprs) const {
  Group g{.fusion = &fusion, .exprs = exprs};
  std::set<int64_t> inside;
  for (const Expr* e : exprs) {
    inside.insert(e->id());
  }
  std::set<int64_t> known;
  auto take = [&](std::vector<TensorView*>& list, TensorView* tv) {
    list.push_back(tv);
    if (auto it = layouts.find(tv->id()); it != layouts.end()) {
      g.layouts[tv->id()] = it->second;
    }
  };
  for (const Expr* e : exprs) {
    for (TensorView* tv : e->tensorInputs()) {
      bool made = tv->definition() != nullptr && inside.contains(tv->definition()->id());
      if (!made && known.insert(tv->id()).second) {
        take(g.inputs, tv);
      }
    }
    TensorView* out = e->tensorOutput();
    const auto isOutside = [&](const Expr* use) { return !inside.contains(use->id()); };
    if (out->isFusionOutput() || std::ranges::any_of(fusion.uses(out), isOutside)) {
      take(g.outputs, out);
    }
  }
  return g;
}

std::unique_ptr<const Judgement> LocalContext::judgementOf(const Group& group) const {
  Verdict verdict = judge(group);
  invariant(verdict.judgement != nullptr, "[templates] no template accepts the kernel of {}: {}",
            group.exprs.back()->output()->toString(), verdict.refusal);
  return std::move(verdict.judgement);
}

std::string toText(const Fusion& fusion, const LocalContext& context) {
  std::string text = fusion.toString();
  for (const auto& [id, layout] : context.layouts) {
    text += fmt::format("# T{} strides [{}] alignment {}{}\n", id, joined(layout.strides, ", ", &IntExpr::toString),
                        layout.alignment, context.views.contains(id) ? " view" : "");
  }
  return text;
}

}  // namespace meshfuse
