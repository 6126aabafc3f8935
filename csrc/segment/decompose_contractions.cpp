#include "segment/decompose_contractions.h"

#include <fmt/core.h>

#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "segment/local_context.h"

namespace meshfuse {

namespace {

TensorView* widened(TensorView* tv) { return isHalfPrecision(tv->dtype()) ? castOp(DataType::Float, tv) : tv; }

TensorView* sumOfLast(TensorView* tv) { return reductionOp(ReduceOp::Sum, tv, {-1}); }

TensorView* matmulResult(const Expr& e) {
  TensorView* a = widened(e.tensorInputs()[0]);
  TensorView* b = widened(e.tensorInputs()[1]);
  bool rowVector = a->shape().size() == 1;
  bool columnVector = b->shape().size() == 1;
  if (rowVector) {
    a = unsqueeze(a, 0);
  }
  b = columnVector ? unsqueeze(b, 0) : transpose(b, -2, -1);  // [.., N, K]
  b = unsqueeze(b, -3);
  TensorView* c = sumOfLast(mul(unsqueeze(a, -2), b));
  if (columnVector) {
    c = squeeze(c, -1);
  }
  return rowVector ? squeeze(c, columnVector ? -1 : -2) : c;
}

TensorView* linearResult(const Expr& e) {
  std::vector<TensorView*> in = e.tensorInputs();
  TensorView* x = widened(in[0]);
  TensorView* w = widened(in[1]);
  TensorView* c = sumOfLast(w->shape().size() == 1 ? mul(x, w) : mul(unsqueeze(x, -2), w));
  return in.size() > 2 ? add(c, widened(in[2])) : c;
}

}  // namespace

bool decomposeContractions(Fusion& fusion, LocalContext& context) {
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    if (!isContraction(*e)) {
      continue;
    }
    const Verdict verdict = context.judge(context.groupOf(fusion, {e}));
    if (verdict.judgement != nullptr) {
      continue;
    }
    TensorView* c = e->kind() == ExprKind::Matmul ? matmulResult(*e) : linearResult(*e);
    const int64_t number = e->output()->id();
    TensorView* sum = maybeCastOp(e->output()->dtype(), c);
    fusion.replaceUses(e->output(), sum);
    fusion.renumber(sum, number);
    context.remarks.push_back(fmt::format("T{} = {}: computed as products and sums, because no library accepts it: {}",
                                          number, e->opName(), verdict.refusal));
    changed = true;
  }
  return changed;
}

}  // namespace meshfuse
