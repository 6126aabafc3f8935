#include "segment/contiguous_operands.h"

#include <cstdint>
#include <ranges>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ops/shape_ops.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

bool isContiguous(const TensorView* tv, const std::map<int64_t, Layout>& layouts) {
  auto it = layouts.find(tv->id());
  if (it == layouts.end()) {
    return true;
  }
  std::vector<IntExpr> shape = tv->shape();
  IntExpr stride = 1;
  for (int64_t d = std::ssize(shape) - 1; d >= 0; d--) {
    if (!shape[d].isConst(1) && !(it->second.strides[d] == stride)) {
      return false;
    }
    stride *= shape[d];
  }
  return true;
}

}  // namespace

bool contiguousOperands(Fusion& fusion, LocalContext& context) {
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    if (!readsOnePiece(*e)) {
      continue;
    }
    TensorView* in = e->tensorInputs()[0];
    // a bit cast is a view: if the program overwrites its input, the view must be that of a copy
    const bool overwritten = e->kind() == ExprKind::BitCast && contains(std::views::values(fusion.aliases()), in);
    if (overwritten || !isContiguous(in, context.layouts)) {
      fusion.replaceInput(e, 0, set(in));
      changed = true;
    }
  }
  return changed;
}

}  // namespace meshfuse
