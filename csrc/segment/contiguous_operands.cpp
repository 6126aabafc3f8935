#include "segment/contiguous_operands.h"

#include "ir/fusion.h"
#include "ops/copy_shape.h"

namespace meshfuse {

namespace {

bool isContiguous(const TensorView* tv, const std::map<int, Layout>& layouts) {
  auto it = layouts.find(tv->id());
  if (it == layouts.end()) {
    return true;
  }
  std::vector<IntExpr> shape = tv->shape();
  IntExpr stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    if (!shape[d].isConst(1) && !(IntExpr(it->second.strides[d]) == stride)) {
      return false;
    }
    stride *= shape[d];
  }
  return true;
}

}  // namespace

bool contiguousOperands(Fusion& fusion, const std::map<int, Layout>& layouts) {
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    if (e->kind() != ExprKind::Communicate && e->kind() != ExprKind::BitCast) {
      continue;
    }
    TensorView* in = e->tensorInputs()[0];
    if (!isContiguous(in, layouts)) {
      fusion.replaceInput(e, 0, set(in));
      changed = true;
    }
  }
  return changed;
}

}  // namespace meshfuse
