#include "ops/scan_sort.h"

#include "base/error.h"
#include "ops/indexing.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

int64_t dimOfLine(std::string_view op, const TensorView* x, int64_t dim) {
  checkTensor(op, x, "operand");
  return wrapAxis(op, dim, std::max<int64_t>(rankOf(x), 1));
}

// f of x with a dim, where x has none.
template <class Fn>
TensorView* withDim(TensorView* x, Fn&& f) {
  return rankOf(x) > 0 ? f(x) : reshape(f(reshape(x, {1})), std::vector<int64_t>{});
}

TensorView* scanAs(std::string_view name, TensorView* x, int64_t dim, ReduceOp op) {
  const int64_t axis = dimOfLine(name, x, dim);
  check(accepts(op, x->dtype()) && !isHalfPrecision(x->dtype()), "[{}] {} is not defined for {} elements; cast {}",
        name, meshfuse::name(op), meshfuse::name(x->dtype()), describe(x));
  return withDim(x, [&](TensorView* line) {
    return line->fusion().addOp(ExprKind::Scan, {line}, line->dtype(), dimsOf(line), {.reduce = op, .dim = axis});
  });
}

TensorView* accumulated(std::string_view name, TensorView* x, int64_t dim, ReduceOp op, std::optional<DataType> dtype) {
  checkTensor(name, x, "operand");
  check(dtype != DataType::Bool, "[{}] result type Bool for {}; use scan with ReduceOp::Or", name, describe(x));
  DataType type = dtype.value_or(x->dtype());
  type = isHalfPrecision(type) ? DataType::Float : isFloatingPoint(type) || dtype.has_value() ? type : DataType::Int;
  TensorView* out = scanAs(name, maybeCastOp(type, x), dim, op);
  return dtype ? maybeCastOp(*dtype, out) : out;
}

enum class Order : uint8_t { Ascending, Descending };

// Positions of the first `count` elements in the order.
TensorView* firstInOrder(TensorView* x, int64_t axis, const IntExpr& count, Order order) {
  TensorView* line = isHalfPrecision(x->dtype()) ? castOp(DataType::Float, x) : x;
  std::vector<Dim> dims = dimsOf(line);
  dims[axis] = count == dims[axis].extent ? dims[axis] : dynamicDimOf(count);
  return line->fusion().addOp(ExprKind::ArgSort, {line}, DataType::Int, dims,
                              {.dim = axis, .flags = {order == Order::Descending}});
}

}  // namespace

TensorView* scan(TensorView* x, int64_t dim, ReduceOp op) { return scanAs("scan", x, dim, op); }

TensorView* cumsum(TensorView* x, int64_t dim, std::optional<DataType> dtype) {
  return accumulated("cumsum", x, dim, ReduceOp::Sum, dtype);
}

TensorView* cumprod(TensorView* x, int64_t dim, std::optional<DataType> dtype) {
  return accumulated("cumprod", x, dim, ReduceOp::Prod, dtype);
}

TensorView* argsort(TensorView* x, int64_t dim, bool descending, bool /*stable*/) {
  const int64_t axis = dimOfLine("argsort", x, dim);
  return withDim(x, [&](TensorView* line) {
    return firstInOrder(line, axis, line->shape()[axis], descending ? Order::Descending : Order::Ascending);
  });
}

SortResult sort(TensorView* x, int64_t dim, bool descending, bool stable) {
  const int64_t axis = dimOfLine("sort", x, dim);
  TensorView* indices = argsort(x, axis, descending, stable);
  return {rankOf(x) == 0 ? set(x) : takeAlongAxis(x, indices, axis), indices};
}

TopKResult topk(TensorView* x, Operand k, int64_t dim, bool largest, bool /*sorted*/) {
  const int64_t axis = dimOfLine("topk", x, dim);
  check(!k.isMissing() && !k.isTensor() && k.dtype() == DataType::Int,
        "[topk] k is no integer; expected an integer of at most the extent of dim {}", axis);
  const IntExpr count = k.in(commonFusion("topk", {x, k.val() != nullptr ? k.val() : x}))->intExpr();
  const IntExpr extent = rankOf(x) == 0 ? IntExpr(1) : x->shape()[axis];
  check(!count.isConst() || count.constValue() >= 0, "[topk] k is {}, expected 0 or more", count.toString());
  check(!provenLess(extent, count), "[topk] k is {}, but dim {} of {} has extent {}; ask for no more than that",
        count.toString(), axis, describe(x), extent.toString());
  if (rankOf(x) == 0) {
    check(count.isConst(1), "[topk] k is {} of {}, which has one element; ask for 1", count.toString(), describe(x));
    return sort(x, 0, largest);
  }
  TensorView* indices = firstInOrder(x, axis, count, largest ? Order::Descending : Order::Ascending);
  return {takeAlongAxis(x, indices, axis), indices};
}

}  // namespace meshfuse
