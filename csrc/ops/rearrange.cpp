// flip, roll, triu and tril: elements in another order, and triangles of matrices.
#include "base/error.h"
#include "base/ranges.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

// Elements first, first + 1, .. below last along `axis`.
TensorView* along(TensorView* x, int64_t axis, const IntExpr& first, const IntExpr& last) {
  std::vector<Slice> ranges(rankOf(x));
  ranges[axis] = {x->fusion().intScalar(first), x->fusion().intScalar(last), nullptr};
  return slice(x, ranges);
}

TensorView* rolled(TensorView* x, int64_t axis, int64_t shift) {
  const IntExpr extent = x->shape()[axis];
  const IntExpr first = extent - mod(IntExpr(shift), max(extent, IntExpr(1)));  // of x, at the beginning of the result
  if (first == extent) {
    return x;
  }
  return cat({along(x, axis, first, extent), along(x, axis, 0, first)}, axis);
}

// x where column - row of its element, in the last two dims, compares so with `diagonal`, else 0.
TensorView* triangle(std::string_view op, PointOp compare, TensorView* x, const Operand& diagonal) {
  checkTensor(op, x, "operand");
  const int64_t rank = rankOf(x);
  check(rank >= 2, "[{}] {} is no matrix; expected 2 or more dims", op, describe(x));
  const auto positions = [&](int64_t axis) { return iota(x->fusion(), x->shape()[axis]); };
  check(!diagonal.isMissing() && !diagonal.isTensor() && isIntegral(diagonal.dtype()),
        "[{}] the diagonal is a tensor, null or no integer; expected an Int scalar", op);
  TensorView* rows = unsqueeze(positions(rank - 2), 1);
  const Operand operands[] = {sub(positions(rank - 1), rows), diagonal};
  return maybeCastOp(x->dtype(), where(pointOp(compare, operands)->asTensor(), x, 0));
}

}  // namespace

TensorView* flip(TensorView* x, const std::vector<int64_t>& dims) {
  checkTensor("flip", x, "operand");
  TensorView* out = set(x);
  for (const int64_t axis : wrapAxes("flip", dims, rankOf(x))) {
    const IntExpr extent = x->shape()[axis];
    out = index_select(out, axis, iota(x->fusion(), extent, extent - 1, -1));
  }
  return out;
}

TensorView* roll(TensorView* x, const std::vector<int64_t>& shifts, const std::vector<int64_t>& dims) {
  checkTensor("roll", x, "operand");
  if (dims.empty()) {
    check(shifts.size() == 1, "[roll] got {} shifts and no dims; expected one shift, or a dim for each", shifts.size());
    const IntList shape(x->shape());
    return reshape(set(rolled(flatten(x), 0, shifts[0])), shape);
  }
  check(shifts.size() == dims.size(), "[roll] got {} shifts and {} dims; expected as many of each", shifts.size(),
        dims.size());
  TensorView* out = x;
  for (const int64_t k : indices(dims)) {
    out = rolled(out, wrapAxis("roll", dims[k], rankOf(x)), shifts[k]);
  }
  return out == x ? set(x) : out;
}

TensorView* triu(TensorView* x, Operand diagonal) { return triangle("triu", PointOp::Ge, x, diagonal); }
TensorView* tril(TensorView* x, Operand diagonal) { return triangle("tril", PointOp::Le, x, diagonal); }

}  // namespace meshfuse
