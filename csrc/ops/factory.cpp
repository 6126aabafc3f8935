#include "ops/factory.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/builder_call.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

std::vector<Dim> dimsOfShape(std::string_view op, const IntList& shape) {
  std::vector<Dim> dims;
  for (const IntExpr& extent : shape.items()) {
    check(!extent.isConst() || extent.constValue() >= 0, "[{}] extent {} of shape {}, expected 0 or more", op,
          extent.toString(), describe(shape.items()));
    dims.push_back(dimOf(extent));
  }
  return dims;
}

// The fusion of the first operand that has one, else that of the shape, else that of the guard.
Fusion& fusionOf(std::initializer_list<Operand> operands, const IntList& shape = {}) {
  const auto* found = std::ranges::find_if(operands, &Operand::val);
  return found != operands.end() ? found->val()->fusion() : shape.fusion();
}

std::string givenText(const Operand& operand) {
  return operand.isMissing()  ? "null"
         : operand.isTensor() ? describe(operand.val()->asTensor())
                              : std::string(name(operand.dtype()));
}

Val* scalarOf(std::string_view op, std::string_view what, Fusion& fusion, const Operand& operand, DataType dtype) {
  check(!operand.isMissing() && !operand.isTensor(), "[{}] {} is {}, expected a scalar; give a number or a Val", op,
        what, givenText(operand));
  return scalarAs(fusion, operand.in(fusion), dtype);
}

IntExpr extentOf(std::string_view op, Fusion& fusion, const Operand& operand) {
  check(!operand.isMissing() && !operand.isTensor() && operand.dtype() == DataType::Int,
        "[{}] a length is {}, expected an Int scalar; cast it with castOp", op, givenText(operand));
  IntExpr extent = operand.in(fusion)->intExpr();
  check(!extent.isConst() || extent.constValue() >= 0, "[{}] got length {}, expected 0 or more", op, extent.toString());
  return extent;
}

// A constant number, as a double.
std::optional<double> constantOf(Fusion& fusion, const Operand& operand) {
  Val* val = operand.in(fusion);
  return val->isConst() ? std::optional(toDouble(val->constant())) : std::nullopt;
}

}  // namespace

TensorView* full(Fusion& fusion, const IntList& shape, Operand value, DataType dtype) {
  Val* fill = scalarOf("full", "the value", fusion, value, dtype);
  return fusion.addOp(ExprKind::Full, {fill}, dtype, dimsOfShape("full", shape));
}

TensorView* full(const IntList& shape, Operand value, DataType dtype) {
  return full(fusionOf({value}, shape), shape, value, dtype);
}

TensorView* full_like(TensorView* x, Operand value, std::optional<DataType> dtype) {
  checkTensor("full_like", x, "operand");
  return full(x->fusion(), x->shape(), value, dtype.value_or(x->dtype()));
}

TensorView* zeros(const IntList& shape, DataType dtype) { return full(shape, 0, dtype); }
TensorView* zeros_like(TensorView* x) { return full_like(x, 0); }
TensorView* ones(const IntList& shape, DataType dtype) { return full(shape, 1, dtype); }
TensorView* ones_like(TensorView* x) { return full_like(x, 1); }

TensorView* iota(Fusion& fusion, Operand length, Operand start, Operand step, DataType dtype) {
  check(dtype != DataType::Bool, "[iota] got type Bool, expected a number type");
  IntExpr extent = extentOf("iota", fusion, length);
  DataType type = accumulateType(dtype);
  TensorView* out = fusion.tensor(type, {dimOf(extent)});
  fusion.addExpr(ExprKind::Iota,
                 {scalarOf("iota", "start", fusion, start, type), scalarOf("iota", "step", fusion, step, type)}, {out},
                 {.starts = {0}});
  return maybeCastOp(dtype, out);
}

TensorView* iota(Operand length, Operand start, Operand step, DataType dtype) {
  return iota(fusionOf({length, start, step}), length, start, step, dtype);
}

TensorView* arange(Operand start, Operand end, Operand step, DataType dtype) {
  check(!start.isMissing() && !end.isMissing() && !step.isMissing(), "[arange] an argument is null, expected scalars");
  Fusion& fusion = fusionOf({start, end, step});
  std::optional<double> stride = constantOf(fusion, step);
  check(stride.has_value() && *stride != 0,
        "[arange] the step is not a constant or is 0, expected another constant; use iota with a length");
  check(std::fabs(*stride) < 0x1p63, "[arange] got step {}, expected less than 2^63; use iota with a length", *stride);
  bool integers = start.dtype() == DataType::Int && end.dtype() == DataType::Int && step.dtype() == DataType::Int;
  if (integers) {
    IntExpr first = start.in(fusion)->intExpr();
    IntExpr last = end.in(fusion)->intExpr();
    IntExpr way = *stride > 0 ? last - first : first - last;
    IntExpr length = ceilDiv(max(IntExpr(0), way), IntExpr(static_cast<int64_t>(std::fabs(*stride))));
    return iota(fusion, length, start, step, dtype);
  }
  std::optional<double> first = constantOf(fusion, start);
  std::optional<double> last = constantOf(fusion, end);
  check(first.has_value() && last.has_value(),
        "[arange] a floating range has an end that is no constant, expected constants; use iota with a length");
  double count = std::ceil((*last - *first) / *stride);
  check(count < 0x1p53, "[arange] from {} to {} in steps of {} gives {} elements, expected less than 2^53", *first,
        *last, *stride, count);
  return iota(fusion, IntExpr(static_cast<int64_t>(std::max(count, 0.0))), start, step, dtype);
}

TensorView* arange(Operand start, Operand end, DataType dtype) { return arange(start, end, 1, dtype); }
TensorView* arange(Operand end, DataType dtype) { return arange(0, end, 1, dtype); }

TensorView* eye(Operand rows, Operand columns, DataType dtype) {
  Fusion& fusion = fusionOf({rows, columns});
  return fusion.addOp(ExprKind::Eye, {}, dtype,
                      {dimOf(extentOf("eye", fusion, rows)), dimOf(extentOf("eye", fusion, columns))},
                      {.starts = {0, 0}});
}

TensorView* eye(Operand size, DataType dtype) { return eye(size, size, dtype); }

// -- random ---------------------------------------------------------------------------------------------------------------

namespace {

struct RandomNumbers {
  std::string_view op;
  RandomKind kind;
  Fusion& fusion;
  RandomSource source;
};

TensorView* randomOp(const RandomNumbers& numbers, const IntList& shape, DataType dtype) {
  const auto& [op, kind, fusion, source] = numbers;
  const auto& [seed, offset] = source;
  check(isFloatingPoint(dtype), "[{}] got type {}, expected a floating type", op, name(dtype));
  DataType type = dtype == DataType::Double ? dtype : DataType::Float;
  for (const auto& [operand, what] : {std::pair<const Operand&, std::string_view>{seed, "seed"}, {offset, "offset"}}) {
    check(!operand.isMissing() && !operand.isTensor() && operand.dtype() == DataType::Int,
          "[{}] {} is {}, expected an Int scalar; cast it with castOp", op, what, givenText(operand));
  }
  TensorView* out = fusion.tensor(type, dimsOfShape(op, shape));
  ExprAttributes attributes{.random = kind, .ordinal = fusion.nextOrdinal()};
  attributes.starts.assign(shape.size(), IntExpr(0));
  attributes.stops = shape.items();
  fusion.addExpr(ExprKind::Random, {seed.in(fusion), offset.in(fusion)}, {out}, attributes);
  if (kind == RandomKind::Uniform && isHalfPrecision(dtype)) {  // the largest ones would be rounded to 1
    return castOp(dtype, minimum(out, dtype == DataType::Half ? 1 - 0x1p-11 : 1 - 0x1p-8));
  }
  return maybeCastOp(dtype, out);
}

TensorView* randomLike(std::string_view op, RandomKind kind, TensorView* x, const Operand& seed,
                       const Operand& offset) {
  checkTensor(op, x, "operand");
  check(isFloatingPoint(x->dtype()), "[{}] {} has elements that are not floating; name a type with rand or randn", op,
        describe(x));
  return randomOp({op, kind, x->fusion(), {seed, offset}}, x->shape(), x->dtype());
}

}  // namespace

TensorView* rand(const IntList& shape, DataType dtype, Operand seed, Operand offset) {
  return randomOp({"rand", RandomKind::Uniform, fusionOf({seed, offset}, shape), {seed, offset}}, shape, dtype);
}

TensorView* randn(const IntList& shape, DataType dtype, Operand seed, Operand offset) {
  return randomOp({"randn", RandomKind::Normal, fusionOf({seed, offset}, shape), {seed, offset}}, shape, dtype);
}

TensorView* rand_like(TensorView* x, Operand seed, Operand offset) {
  return randomLike("rand_like", RandomKind::Uniform, x, seed, offset);
}

TensorView* randn_like(TensorView* x, Operand seed, Operand offset) {
  return randomLike("randn_like", RandomKind::Normal, x, seed, offset);
}

namespace {

// base + factor * random, in Float at least.
TensorView* affine(TensorView* random, Operand base, Operand factor, DataType dtype) {
  return maybeCastOp(dtype, add(base, mul(random, factor)));
}

}  // namespace

TensorView* uniform(const IntList& shape, Operand low, Operand high, DataType dtype, Operand seed, Operand offset) {
  Fusion& fusion = fusionOf({seed, offset}, shape);
  TensorView* random = randomOp({"uniform", RandomKind::Uniform, fusion, {seed, offset}}, shape, accumulateType(dtype));
  Val* highest = scalarOf("uniform", "high", fusion, high, DataType::Double);
  Val* lowest = scalarOf("uniform", "low", fusion, low, DataType::Double);
  return affine(random, lowest, sub(highest, lowest), dtype);
}

TensorView* normal(const IntList& shape, Operand mean, Operand deviation, DataType dtype, Operand seed,
                   Operand offset) {
  Fusion& fusion = fusionOf({seed, offset}, shape);
  TensorView* random = randomOp({"normal", RandomKind::Normal, fusion, {seed, offset}}, shape, accumulateType(dtype));
  Val* scale = scalarOf("normal", "the deviation", fusion, deviation, DataType::Double);
  return affine(random, scalarOf("normal", "the mean", fusion, mean, DataType::Double), scale, dtype);
}

ForwardDropoutResult dropout(TensorView* x, Operand keep, Operand scale, const RandomSource& source) {
  checkTensor("dropout", x, "x");
  Fusion& fusion = x->fusion();
  DataType type = x->dtype() == DataType::Double ? DataType::Double : DataType::Float;
  TensorView* random = randomOp({"dropout", RandomKind::Uniform, fusion, source}, x->shape(), type);
  TensorView* mask = lt(random, scalarOf("dropout", "keep", fusion, keep, DataType::Double));
  TensorView* kept = mul(x, castOp(type, mask));
  return {mul(kept, scalarOf("dropout", "scale", fusion, scale, DataType::Double)), mask};
}

ForwardDropoutResult dropout(TensorView* x, Operand drop, const RandomSource& source) {
  checkTensor("dropout", x, "x");
  Fusion& fusion = x->fusion();
  Val* keep = sub(1.0, scalarOf("dropout", "drop", fusion, drop, DataType::Double));
  if (keep->isConst()) {
    double probability = std::get<double>(keep->constant());
    check(probability >= 0 && probability <= 1, "[dropout] got probability {}, expected 0 to 1", 1 - probability);
    return dropout(x, keep, probability == 0 ? 0.0 : 1 / probability, source);
  }
  // 1 / 0 would make NaN of the dropped elements.
  Val* divisor = add(keep, scalarAs(fusion, eq(keep, 0.0), DataType::Double));
  return dropout(x, keep, div(1.0, divisor), source);
}

TensorView* dropout_backward(TensorView* dy, TensorView* mask, Operand scale) {
  const BuilderCall call("dropout_backward", dy);
  checkTensor("dropout_backward", dy, "dy");
  checkTensor("dropout_backward", mask, "mask");
  checkStretchesTo("dropout_backward", "mask", mask, "dy", dy);
  DataType type = dy->dtype() == DataType::Double ? DataType::Double : DataType::Float;
  Val* factor = scalarOf("dropout_backward", "scale", dy->fusion(), scale, DataType::Double);
  return mul(mul(dy, castOp(type, mask)), factor);
}

}  // namespace meshfuse
