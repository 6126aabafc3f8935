#include "ops/contraction.h"

#include <algorithm>

#include "base/error.h"
#include "base/ranges.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

void checkTypes(std::string_view op, const TensorView* a, const TensorView* b) {
  check(a->dtype() == b->dtype(), "[{}] element types differ: {} and {}; cast one with castOp", op, describe(a),
        describe(b));
  check(a->dtype() != DataType::Bool, "[{}] {} has Bool elements, expected numbers; cast with castOp", op, describe(a));
}

void checkInner(std::string_view op, const TensorView* a, const IntExpr& ka, const TensorView* b, const IntExpr& kb,
                std::string_view advice) {
  check(!provenDifferent(ka, kb), "[{}] inner extents differ: {} has {}, {} has {}; {}", op, describe(a), ka.toString(),
        describe(b), kb.toString(), advice);
}

// The contracted extent: a constant if one side knows it.
Dim contracted(const IntExpr& a, const IntExpr& b) { return {b.isConst() ? b : a, IterType::Reduction}; }

// Batch dims of matmul, aligned from the right.
std::vector<Dim> batchDims(const TensorView* a, const std::vector<Dim>& da, const TensorView* b,
                           const std::vector<Dim>& db) {
  size_t rank = std::max(da.size(), db.size());
  std::vector<Dim> dims;
  for (size_t k = 0; k < rank; k++) {
    const Dim one{1, IterType::Broadcast};
    const Dim& p = k + da.size() < rank ? one : da[k + da.size() - rank];
    const Dim& q = k + db.size() < rank ? one : db[k + db.size() - rank];
    bool stretches = mayStretch(p) || mayStretch(q);
    check(
        stretches || !provenDifferent(p.extent, q.extent),
        "[matmul] batch extents differ: {} has {}, {} has {}; expected equal extents or a broadcast dim (a constant 1)",
        describe(a), p.extent.toString(), describe(b), q.extent.toString());
    dims.push_back(stretched(p, q));
  }
  return dims;
}

}  // namespace

TensorView* matmul(TensorView* a, TensorView* b) {
  checkTensor("matmul", a, "operand 0");
  checkTensor("matmul", b, "operand 1");
  Fusion& fusion = commonFusion("matmul", {a, b});
  checkTypes("matmul", a, b);
  check(rankOf(a) > 0 && rankOf(b) > 0, "[matmul] {} and {}: a 0-d tensor has no inner dim; use mul", describe(a),
        describe(b));
  std::vector<Dim> da = dimsOf(a);
  std::vector<Dim> db = dimsOf(b);
  Dim ka = da.back();
  da.pop_back();
  bool hasN = db.size() > 1;
  Dim kb = hasN ? db[db.size() - 2] : db[0];
  checkInner("matmul", a, ka.extent, b, kb.extent, fmt::format("transpose T{} or T{}", a->id(), b->id()));

  const std::vector<Dim> rows(da.end() - (da.empty() ? 0 : 1), da.end());
  da.resize(da.size() - rows.size());
  const std::vector<Dim> columns(db.end() - (hasN ? 1 : 0), db.end());
  db.resize(hasN ? db.size() - 2 : 0);
  std::vector<Dim> dims = batchDims(a, da, b, db);
  append(dims, rows);
  append(dims, columns);
  dims.push_back(contracted(ka.extent, kb.extent));
  return fusion.addOp(ExprKind::Matmul, {a, b}, a->dtype(), dims);
}

TensorView* linear(TensorView* x, TensorView* weight, TensorView* bias) {
  checkTensor("linear", x, "operand 0");
  checkTensor("linear", weight, "the weight");
  std::vector<Val*> operands = {x, weight};
  if (bias != nullptr) {
    operands.push_back(bias);
  }
  Fusion& fusion = commonFusion("linear", operands);
  checkTypes("linear", x, weight);
  check(rankOf(x) >= 1, "[linear] {} is 0-d, expected [.., K]; unsqueeze it", describe(x));
  check(rankOf(weight) == 1 || rankOf(weight) == 2, "[linear] the weight is {}, expected [N, K] or [K]",
        describe(weight));
  std::vector<Dim> dims = dimsOf(x);
  std::vector<Dim> w = dimsOf(weight);
  checkInner("linear", x, dims.back().extent, weight, w.back().extent, "the weight is [N, K]: transpose it");
  Dim inner = contracted(dims.back().extent, w.back().extent);
  dims.pop_back();
  if (w.size() == 2) {
    dims.push_back(w[0]);
  }
  if (bias != nullptr) {
    checkTypes("linear", x, bias);
    bool fits = rankOf(bias) == std::ssize(w) - 1 && (w.size() == 1 || !provenDifferent(bias->shape()[0], w[0].extent));
    check(fits, "[linear] the bias is {}, the weight {}; expected a bias of {}", describe(bias), describe(weight),
          w.size() == 2 ? "[" + w[0].extent.toString() + "]" : "no dims");
  }
  dims.push_back(inner);
  return fusion.addOp(ExprKind::Linear, operands, x->dtype(), dims);
}

}  // namespace meshfuse
