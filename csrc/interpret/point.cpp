// Elementwise ops over arrays, and how bounds go through them.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "interpret/ops.h"
#include "interpret/point_functions.h"

namespace meshfuse::reference {

namespace {

// How many ulps an implementation of the op may be off: those of <cmath>-like functions in kernels, 0.5 where IEEE 754
// demands correct rounding, -1 where the result is exact. A quotient may come from PTX's div.full (2 ulps) or rcp.approx (1) and a product.
double ulpsOf(PointOp op) {
  using enum PointOp;
  static constexpr std::pair<PointOp, double> kUlps[] = {
      {Abs, -1},   {Neg, -1},    {Maximum, -1}, {Minimum, -1}, {Where, -1},     {Ceil, -1}, {Floor, -1},
      {Round, -1}, {Trunc, -1},  {Sign, -1},    {Frac, -1},    {NextAfter, -1}, {Add, 0.5}, {Sub, 0.5},
      {Mul, 0.5},  {Fma, 0.5},   {Sqrt, 0.5},   {Div, 2},      {Reciprocal, 2}, {Fmod, 1},  {Remainder, 1},
      {Rsqrt, 2},  {Sigmoid, 6}, {Tanh, 6},     {Erfc, 6},     {Pow, 8},        {Erfinv, 8}};
  static constexpr auto kOf = [] {
    std::array<double, kPointOps.size()> of{};
    of.fill(4);
    for (const auto& [known, ulps] : kUlps) {
      of[static_cast<size_t>(known)] = ulps;
    }
    return of;
  }();
  return kOf[static_cast<size_t>(op)];
}

// Below this the results of functions may be flushed or lose bits; those of arithmetic are off by units of the subnormal numbers.
double smallest(DataType type, double ulps) {
  const bool wide = type == DataType::Double;
  return ulps <= 2 ? std::max(ulps, 1.0) * (wide ? 0x1p-1074 : 0x1p-149) : (wide ? 0x1p-1022 : 0x1p-126);
}

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0;
  }
  double d = std::fabs(a - b);
  return std::isnan(d) ? kInfinity : d;
}

bool isJump(PointOp op) {
  using enum PointOp;
  constexpr PointOp kJumps[] = {Ceil,    Floor,    Frac,  Round, Sign,     Trunc,
                                Signbit, IsFinite, IsInf, IsNan, IsNegInf, IsPosInf};
  return contains(kJumps, op);
}

// One element: operands and their bounds, the result of the op on the operands.
struct Element {
  PointOp op;
  DataType type;   // of the operands
  DataType dtype;  // of the result
  std::array<double, 3> value{};
  std::array<double, 3> error{};
  double result = 0;  // of a floating type
  bool uncertain = false;

  double at(double a, double b) const { return applyReal(op, type, a, b, value[2]); }

  // The largest change of the result over the ends of the operands' intervals.
  double span() const {
    double change = 0;
    for (double a : {value[0] - error[0], value[0] + error[0]}) {
      for (double b : {value[1] - error[1], value[1] + error[1]}) {
        change = std::max(change, distance(at(a, b), result));
      }
    }
    return change;
  }

  double quotientError() const {
    double room = std::fabs(value[1]) - error[1];
    return room > 0 ? (error[0] + std::fabs(value[0] / value[1]) * error[1]) / room : kInfinity;
  }

  // Of comparisons: the operands' intervals touch.
  double comparisonError() {
    uncertain = distance(value[0], value[1]) <= error[0] + error[1];
    return uncertain ? 1 : 0;
  }

  double remainderError() {
    double turns = value[0] / value[1];
    double change = quotientError();
    uncertain = !std::isfinite(change) || std::floor(turns - change) != std::floor(turns + change) ||
                std::trunc(turns - change) != std::trunc(turns + change);
    return uncertain ? std::fabs(value[1]) + error[1] + error[0] : error[0] + std::fabs(turns) * error[1];
  }

  double whereError() const {
    if (error[0] > 0) {
      return distance(value[1], value[2]) + std::max(error[1], error[2]);
    }
    return value[0] != 0 ? error[1] : error[2];
  }

  // Change of the result that the operands' bounds allow; 0 if they are exact.
  double carried() {
    if (error[0] == 0 && error[1] == 0 && error[2] == 0) {
      return 0;
    }
    switch (op) {
      case PointOp::Abs:
      case PointOp::Neg:
      case PointOp::CheckedIndex:
        return error[0];
      case PointOp::Add:
      case PointOp::Sub:
        return error[0] + error[1];
      case PointOp::Maximum:
      case PointOp::Minimum:
        return std::max(error[0], error[1]);
      case PointOp::Mul:
        return productError(value[0], error[0], value[1], error[1]);
      case PointOp::Where:
        return whereError();
      case PointOp::Eq:
      case PointOp::Ne:
      case PointOp::Gt:
      case PointOp::Ge:
      case PointOp::Lt:
      case PointOp::Le:
        return comparisonError();
      default:
        return isFloatingPoint(type) ? carriedByReals() : anyWhole();
    }
  }

  // Of other ops on integers and Bools: any result.
  double anyWhole() {
    uncertain = true;
    return dtype == DataType::Bool ? 1 : kInfinity;
  }

  double carriedByReals() {
    auto [a, b, c] = value;
    switch (op) {
      case PointOp::Sin:
      case PointOp::Cos:
        return error[0];
      case PointOp::Fma:
        return std::fabs(a) * error[1] + std::fabs(b) * error[0] + error[0] * error[1] + error[2];
      case PointOp::Div:
        return quotientError();
      case PointOp::Fmod:
      case PointOp::Remainder:
        return remainderError();
      case PointOp::NextAfter:
        return error[0] + error[1] + std::fabs(a) * 4 * unitOf(type);
      case PointOp::LogicalNot:
      case PointOp::LogicalAnd:
      case PointOp::LogicalOr:
      case PointOp::LogicalXor:
        uncertain = (error[0] > 0 && std::fabs(a) <= error[0]) || (error[1] > 0 && std::fabs(b) <= error[1]);
        return uncertain ? 1 : 0;
      default: {
        double change = span();
        uncertain = isJump(op) && change > 0;
        return change;
      }
    }
  }

  // Operand k is 0 in every permitted way of computing it.
  bool isZero(size_t k) const { return value[k] == 0 && error[k] == 0; }

  // A result of 0 that no permitted way rounds: x - x, or a product with 0. Others may be what is left of a number below the type's range.
  bool isExactZero() const {
    switch (op) {
      case PointOp::Add:
      case PointOp::Sub:
        return result == 0;
      case PointOp::Mul:
        return result == 0 && (isZero(0) || isZero(1));
      case PointOp::Div:
        return result == 0 && isZero(0);
      default:
        return false;
    }
  }

  double bound() {
    double change = carried();
    double ulps = ulpsOf(op);
    double size = std::fabs(result);
    if (!isFloatingPoint(dtype) || ulps < 0 || !std::isfinite(size) || isExactZero()) {
      return change;
    }
    if (op == PointOp::Lgamma) {
      size = std::max(size, 1.0);  // relative to 1 near its zeros
    }
    return change + (2 + 2 * ulps) * unitOf(type) * size + smallest(type, ulps);
  }
};

// Offsets of an operand for every element of the result; empty if they are the elements' own positions.
std::vector<int64_t> operandOffsets(PointOp op, const Array& x, const Sizes& sizes) {
  if (x.sizes == sizes) {
    return {};
  }
  std::vector<int64_t> strides(sizes.size(), 0);
  if (!x.sizes.empty()) {
    invariant(x.sizes.size() == sizes.size(), "[interpret] {}: an operand has {} dims, the result {}", info(op).name,
              x.sizes.size(), sizes.size());
    std::vector<int64_t> own = contiguousStrides(x.sizes);
    for (int64_t k = 0; k < std::ssize(sizes); k++) {
      strides[k] = x.sizes[k] == 1 && sizes[k] != 1 ? 0 : own[k];
      check(x.sizes[k] == sizes[k] || x.sizes[k] == 1,
            "[{}] extents differ in dim {}: {} and {}; expected equal extents", info(op).name, k, x.sizes[k], sizes[k]);
    }
  }
  return stridedOffsets(sizes, strides);
}

}  // namespace

double productError(double a, double aError, double b, double bError) {
  // 0 * infinity: a bound of nothing times an infinite element is an exact NaN or infinity
  const double left = bError == 0 ? 0 : std::fabs(a) * bError;
  const double right = aError == 0 ? 0 : std::fabs(b) * aError;
  return left + right + aError * bError;
}

double unitOf(DataType dtype) { return isFloatingPoint(dtype) ? std::ldexp(1.0, -info(dtype).mantissaBits) : 0; }

Array pointArray(PointOp op, std::span<const Array* const> operands, DataType type, DataType dtype, const Sizes& sizes,
                 const Context& context) {
  const int64_t first = op == PointOp::Where ? 1 : 0;  // its condition stays Bool
  const bool floating = isFloatingPoint(type);
  Array result = makeArray(dtype, sizes);
  const auto offsets = mapped(operands, [&](const Array* x) { return operandOffsets(op, *x, sizes); });
  const bool exact = std::ranges::all_of(operands, [](const Array* x) { return x->error.empty(); });
  const bool track = context.bounds && (!exact || (floating && !info(op).givesBool && ulpsOf(op) >= 0));

  std::array<double, 3> real{};
  std::array<int64_t, 3> whole{};
  std::array<double, 3> error{};
  const int64_t total = result.numel();
  for (int64_t i = 0; i < total; i++) {
    for (int64_t k : indices(operands)) {
      const Array& x = *operands[k];
      const int64_t at = offsets[k].empty() ? i : offsets[k][i];
      const bool converts = k >= first && x.dtype != type;
      if (floating) {
        real[k] = converts ? roundTo(type, x.value(at)) : x.value(at);
      } else {
        whole[k] = converts ? wrapInteger(type, x.integer(at)) : x.integer(at);
        real[k] = static_cast<double>(whole[k]);
      }
      error[k] = x.errorAt(at);
    }
    const double outcome = floating ? applyReal(op, type, real[0], real[1], real[2]) : 0;
    if (result.floating()) {
      result.setReal(i, outcome);
    } else {
      result.setWhole(i, floating ? static_cast<int64_t>(outcome) : applyWhole(op, type, whole[0], whole[1], whole[2]));
    }
    if (track) {
      Element element{op, type, dtype, real, error, outcome};
      result.setError(i, element.bound());
      result.uncertain += element.uncertain ? 1 : 0;
    }
  }
  return result;
}

namespace {

bool fitsInteger(DataType dtype, double value) {
  double limit = std::ldexp(1.0, bitWidth(truncationType(dtype)) - 1);
  return value > -limit - 1 && value < limit;
}

// Rounds towards zero; values that do not fit, and NaN, give the minimum. Unsigned types keep the low bits.
int64_t truncated(DataType dtype, double value) {
  const int64_t whole = fitsInteger(dtype, value) ? static_cast<int64_t>(value) : lowestInteger(truncationType(dtype));
  return wrapInteger(dtype, whole);
}

double castElement(DataType dtype, double value) {
  if (isFloatingPoint(dtype)) {
    return roundTo(dtype, value);
  }
  return dtype == DataType::Bool ? (value != 0 ? 1 : 0) : static_cast<double>(truncated(dtype, value));
}

}  // namespace

Array castArray(const Array& x, DataType dtype, const Context& context) {
  Array result = makeArray(dtype, x.sizes);
  const bool toInteger = isIntegral(dtype) && x.floating();
  for (int64_t i = 0, total = x.numel(); i < total; i++) {
    const double v = x.value(i);
    const double now = castElement(dtype, v);
    if (dtype == DataType::Float && !x.floating()) {
      result.real[i] = static_cast<float>(x.whole[i]);  // by way of double would round twice
    } else if (result.floating()) {
      result.real[i] = now;
    } else {
      result.setWhole(i, x.floating() ? static_cast<int64_t>(now) : x.whole[i]);
    }
    const double e = x.errorAt(i);
    const bool foreign = context.bounds && toInteger && !fitsInteger(dtype, v);  // C leaves the value open
    if (e == 0 && !foreign) {
      continue;
    }
    double change = std::max(distance(castElement(dtype, v - e), now), distance(castElement(dtype, v + e), now));
    if (dtype == DataType::Bool && std::fabs(v) <= e) {
      change = 1;
    } else if (isUnsigned(dtype) && x.floating() && std::trunc(v - e) != std::trunc(v + e)) {
      change = static_cast<double>(highestInteger(dtype));  // it may wrap between the ends
    }
    result.setError(i, foreign ? kInfinity : change);
    const bool jumps = !result.floating() && (x.floating() || dtype == DataType::Bool);
    result.uncertain += jumps && (foreign || change > 0) ? 1 : 0;
  }
  return result;
}

Array bitCastArray(const Array& x, DataType dtype) {
  Tensor bits = toTensor(x);
  Array result = toArray(Tensor::wrap(bits.data(), x.sizes, contiguousStrides(x.sizes), dtype, bits.storage()));
  for (int64_t i = 0, total = x.numel(); i < total; i++) {
    if (x.errorAt(i) > 0) {
      result.setUncertain(i);
    }
  }
  return result;
}

}  // namespace meshfuse::reference
