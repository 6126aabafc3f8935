#include "ops/statistics.h"

#include <limits>

#include "base/error.h"
#include "ops/factory.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

struct MeanAndSquares {
  TensorView* mean = nullptr;
  TensorView* squares = nullptr;
};

// axes: of a tensor without dims none, which then are none to a reduction as well.
MeanAndSquares meanAndSquaresOf(TensorView* x, const Axes& axes) {
  MeanAndSquares m;
  m.mean = mean(x, axes);
  TensorView* centered = sub(x, withDimsAt(m.mean, axes));
  m.squares = sum(mul(centered, centered), axes);
  return m;
}

VarMeanResult varianceMean(std::string_view op, TensorView* x, const Axes& axes, int64_t correction, bool keepDim) {
  check(correction >= 0, "[{}] correction is {}, expected 0 or more", op, correction);
  x = floatingOperand(op, x, "operand");
  Axes reduced = reducedAxes(op, x, axes);
  MeanAndSquares m = meanAndSquaresOf(x, reduced);
  VarMeanResult result;
  result.var = div(m.squares, max(IntExpr(0), countOver(x, reduced) - IntExpr(correction)));
  result.mean = m.mean;
  if (keepDim) {
    result.var = withDimsAt(result.var, reduced);
    result.mean = withDimsAt(result.mean, reduced);
  }
  return result;
}

// The position of each element among those along `axes`, row-major, of extent 1 in the other dims.
TensorView* positionsAlong(const TensorView* x, const Axes& axes, DataType dtype) {
  std::vector<IntExpr> shape = x->shape();
  TensorView* positions = nullptr;
  IntExpr stride = 1;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    std::vector<bool> isNew(shape.size(), true);
    isNew[*axis] = false;
    TensorView* along = broadcast(iota(x->fusion(), shape[*axis], 0, stride, dtype), isNew);
    positions = positions == nullptr ? along : add(along, positions);
    stride *= shape[*axis];
  }
  return positions;
}

// dim: all if not given.
TensorView* positionOfExtreme(std::string_view op, ReduceOp extreme, TensorView* x, std::optional<int64_t> dim,
                              bool keepDim) {
  checkTensor(op, x, "operand");
  Axes axes = reducedAxes(op, x, dim ? Axes{*dim} : Axes{});
  std::vector<IntExpr> shape = x->shape();
  for (int64_t axis : axes) {
    check(!shape[axis].isConst(0), "[{}] dim {} of {} has no elements to choose from, expected at least 1", op, axis,
          describe(x));
  }
  if (axes.empty()) {
    return zeros_like(castOp(DataType::Int, x));
  }
  x = isHalfPrecision(x->dtype())    ? castOp(DataType::Float, x)
      : x->dtype() == DataType::Bool ? castOp(DataType::Int32, x)
                                     : x;
  IntExpr count = countOver(x, axes);
  const bool fits = count.isConst() && count.constValue() <= std::numeric_limits<int32_t>::max();
  const DataType type = fits ? DataType::Int32 : DataType::Int;
  // The extreme of a row with a NaN is NaN, which equals nothing: then the NaNs are what is looked for.
  TensorView* chosen = eq(x, reductionOp(extreme, x, axes, true));
  if (isFloatingPoint(x->dtype())) {
    chosen = logical_or(chosen, isnan(x));
  }
  TensorView* positions = where(chosen, positionsAlong(x, axes, type), count);
  return maybeCastOp(DataType::Int, reductionOp(ReduceOp::Min, positions, axes, keepDim));
}

}  // namespace

VarMeanResult variance_mean(TensorView* x, const Axes& axes, int64_t correction, bool keep_dim) {
  return varianceMean("variance_mean", x, axes, correction, keep_dim);
}

TensorView* variance(TensorView* x, const Axes& axes, int64_t correction, bool keep_dim) {
  return varianceMean("variance", x, axes, correction, keep_dim).var;
}

TensorView* standard_deviation(TensorView* x, const Axes& axes, int64_t correction, bool keep_dim) {
  return sqrt(varianceMean("standard_deviation", x, axes, correction, keep_dim).var);
}

WelfordResult Welford(TensorView* x, const Axes& axes, TensorView* init_avg, TensorView* init_var, Operand init_N) {
  x = floatingOperand("Welford", x, "operand");
  Axes reduced = reducedAxes("Welford", x, axes);
  const bool joins = init_avg != nullptr;
  check(joins == (init_var != nullptr), "[Welford] got {} alone; give init_avg, init_var and init_N, or none",
        joins ? "init_avg" : "init_var");
  check(!init_N.isMissing(), "[Welford] init_N is null, expected a number; leave it out for none");
  MeanAndSquares m = meanAndSquaresOf(x, reduced);
  WelfordResult result{m.mean, m.squares, nullptr};
  const IntExpr count = countOver(x, reduced);
  result.n = full(x->fusion(), m.mean->shape(), count, DataType::Int);
  if (!joins) {
    return result;
  }
  checkTensor("Welford", init_avg, "init_avg");
  checkTensor("Welford", init_var, "init_var");
  for (const TensorView* init : {init_avg, init_var}) {
    check(rankOf(init) == rankOf(m.mean),
          "[Welford] {} has another number of dims than the result {}; give one that is reduced over the same dims",
          describe(init), describe(m.mean));
  }
  // Two sets of n and k elements, the means d apart: the squares of both and d^2 n k / (n + k).
  result.n = add(result.n, init_N);
  TensorView* share = div(count, castOp(x->dtype(), result.n));
  TensorView* apart = sub(m.mean, init_avg);
  result.avg = add(init_avg, mul(apart, share));
  TensorView* weighted = mul(mul(apart, apart), share);
  TensorView* between = mul(weighted, init_N);
  result.var_sum = add(add(init_var, m.squares), between);
  return result;
}

TensorView* argmax(TensorView* x, std::optional<int64_t> dim, bool keep_dim) {
  return positionOfExtreme("argmax", ReduceOp::Max, x, dim, keep_dim);
}

TensorView* argmin(TensorView* x, std::optional<int64_t> dim, bool keep_dim) {
  return positionOfExtreme("argmin", ReduceOp::Min, x, dim, keep_dim);
}

}  // namespace meshfuse
