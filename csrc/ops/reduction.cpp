#include "ops/reduction.h"

#include "base/error.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

TensorView* reduceAxes(std::string_view name, ReduceOp op, TensorView* x, const Axes& axes, bool keep_dim) {
  checkTensor(name, x, "operand");
  const Axes reduced = reducedAxes(name, x, axes);
  if (reduced.empty()) {
    return set(x);
  }
  std::vector<Dim> dims = dimsOf(x);
  for (int64_t axis : reduced) {
    dims[axis].type = IterType::Reduction;
  }
  TensorView* out = x->fusion().addOp(ExprKind::Reduce, {x}, x->dtype(), dims, {.reduce = op});
  return keep_dim ? withDimsAt(out, reduced) : out;
}

// The type in which elements add up.
DataType accumulationType(DataType t) { return isFloatingPoint(t) ? accumulateType(t) : DataType::Int; }

TensorView* accumulate(std::string_view name, ReduceOp op, TensorView* x, const Axes& axes, bool keep_dim,
                       std::optional<DataType> dtype) {
  checkTensor(name, x, "operand");
  check(dtype != DataType::Bool || op == ReduceOp::Max || op == ReduceOp::Min,
        "[{}] result type Bool for {}; use any or all", name, describe(x));
  DataType type = dtype.value_or(x->dtype());
  if (op == ReduceOp::Sum || op == ReduceOp::Prod) {
    type = dtype && isIntegral(*dtype) ? *dtype : accumulationType(type);
  } else if (type == DataType::Bool) {
    op = op == ReduceOp::Max ? ReduceOp::Or : ReduceOp::And;
  } else if (isHalfPrecision(type)) {
    type = DataType::Float;
  }
  TensorView* out = reduceAxes(name, op, maybeCastOp(type, x), axes, keep_dim);
  return dtype ? maybeCastOp(*dtype, out) : out;
}

TensorView* truth(TensorView* x) { return x->dtype() == DataType::Bool ? x : ne(x, 0); }

TensorView* bitReduction(std::string_view name, ReduceOp op, TensorView* x, const Axes& axes, bool keep_dim) {
  checkTensor(name, x, "operand");
  check(!isFloatingPoint(x->dtype()), "[{}] {} has floating elements, expected integers or Bool; cast with castOp",
        name, describe(x));
  return reduceAxes(name, op, x, axes, keep_dim);
}

}  // namespace

TensorView* reductionOp(ReduceOp op, TensorView* x, const Axes& axes, bool keep_dim) {
  checkTensor("reductionOp", x, "operand");
  check(!isHalfPrecision(x->dtype()),
        "[reductionOp] {} has 16-bit elements, expected a type that can be accumulated; cast to Float", describe(x));
  check(accepts(op, x->dtype()), "[reductionOp] {} is not defined for {} elements; cast {}", name(op), name(x->dtype()),
        describe(x));
  return reduceAxes("reductionOp", op, x, axes, keep_dim);
}

TensorView* sum(TensorView* x, const Axes& axes, bool keep_dim, std::optional<DataType> dtype) {
  return accumulate("sum", ReduceOp::Sum, x, axes, keep_dim, dtype);
}

TensorView* prod(TensorView* x, const Axes& axes, bool keep_dim, std::optional<DataType> dtype) {
  return accumulate("prod", ReduceOp::Prod, x, axes, keep_dim, dtype);
}

TensorView* max(TensorView* x, const Axes& axes, bool keep_dim, std::optional<DataType> dtype) {
  return accumulate("max", ReduceOp::Max, x, axes, keep_dim, dtype);
}

TensorView* min(TensorView* x, const Axes& axes, bool keep_dim, std::optional<DataType> dtype) {
  return accumulate("min", ReduceOp::Min, x, axes, keep_dim, dtype);
}

TensorView* mean(TensorView* x, const Axes& axes, bool keep_dim, std::optional<DataType> dtype) {
  checkTensor("mean", x, "operand");
  check(!dtype || isFloatingPoint(*dtype), "[mean] result type {} for {}; expected a floating type",
        name(dtype.value_or(DataType::Float)), describe(x));
  DataType type = dtype.value_or(x->dtype());
  type = type == DataType::Double ? type : DataType::Float;
  const IntExpr count = countOver(x, reducedAxes("mean", x, axes));
  TensorView* out = div(reduceAxes("mean", ReduceOp::Sum, maybeCastOp(type, x), axes, keep_dim), count);
  return dtype ? maybeCastOp(*dtype, out) : out;
}

TensorView* any(TensorView* x, const Axes& axes, bool keep_dim) {
  checkTensor("any", x, "operand");
  return reduceAxes("any", ReduceOp::Or, truth(x), axes, keep_dim);
}

TensorView* all(TensorView* x, const Axes& axes, bool keep_dim) {
  checkTensor("all", x, "operand");
  return reduceAxes("all", ReduceOp::And, truth(x), axes, keep_dim);
}

TensorView* bitwise_and(TensorView* x, const Axes& axes, bool keep_dim) {
  return bitReduction("bitwise_and", ReduceOp::And, x, axes, keep_dim);
}

TensorView* bitwise_or(TensorView* x, const Axes& axes, bool keep_dim) {
  return bitReduction("bitwise_or", ReduceOp::Or, x, axes, keep_dim);
}

TensorView* bitwise_xor(TensorView* x, const Axes& axes, bool keep_dim) {
  return bitReduction("bitwise_xor", ReduceOp::Xor, x, axes, keep_dim);
}

TensorView* sum_to(TensorView* x, const IntList& list) {
  const std::vector<IntExpr>& sizes = list.items();
  checkTensor("sum_to", x, "operand");
  const int64_t extra = rankOf(x) - std::ssize(sizes);
  check(extra >= 0, "[sum_to] got {} sizes for {}; expected at most one for each dim", sizes.size(), describe(x));
  std::vector<IntExpr> shape = x->shape();
  std::vector<IntExpr> known = shape;
  Axes inner;
  for (int64_t k = extra; k < rankOf(x); k++) {
    if (sizes[k - extra].isConst(1)) {
      if (!shape[k].isConst(1)) {
        inner.push_back(k);
      }
    } else {
      check(!provenDifferent(shape[k], sizes[k - extra]),
            "[sum_to] dim {} of {} has extent {}, got size {}; expected that or 1", k, describe(x), shape[k].toString(),
            sizes[k - extra].toString());
      known[k] = sizes[k - extra];
    }
  }
  x = withExtents(x, known);
  x = inner.empty() ? x : sum(x, inner, true);
  return extra == 0 ? x : sum(x, axesIn(0, extra));
}

}  // namespace meshfuse
