#include "segment/view_steps.h"

#include <algorithm>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

bool hasNoElements(const TensorView* tv) {
  return std::ranges::any_of(tv->shape(), [](const IntExpr& e) { return e.isConst(0); });
}

// A view keeps the order of elements in memory.
bool isViewOp(const Expr& e) {
  switch (ruleOf(e).view) {
    case View::InOrder:
    case View::Contiguous:
      return true;
    case View::Reordered: {  // moving dims of extent 1 only
      const std::vector<IntExpr> shape = e.tensorInputs()[0]->shape();
      return std::ranges::is_sorted(
          filtered(e.attributes().order, [&](int64_t from) { return !shape[from].isConst(1); }));
    }
    case View::No:
    case View::Strided:
    case View::SameType:
      break;
  }
  return false;
}

}  // namespace

bool touchesEmpty(const Expr& e) {
  return std::ranges::any_of(e.tensorInputs(), hasNoElements) ||
         (e.output()->isTensor() && hasNoElements(e.tensorOutput()));
}

bool isAlwaysView(const Expr& e, const LocalContext& context) {
  return e.kind() == ExprKind::BitCast || context.views.contains(e.output()->id());
}

bool isView(const Group& g) {
  return g.inputs.size() == 1 && g.outputs.size() == g.exprs.size() && !g.inputs[0]->isFusionInput() &&
         g.layouts.empty() &&  // all row-major
         std::ranges::all_of(g.exprs, [](const Expr* e) { return isViewOp(*e); });
}

}  // namespace meshfuse
