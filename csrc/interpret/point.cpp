// Elementwise ops over arrays, and how bounds go through them.
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "interpret/ops.h"
#include "interpret/point_functions.h"

namespace meshfuse::reference {

namespace {

// How many ulps an implementation of the op may be off: those of <cmath>-like functions in kernels, 0.5 where IEEE 754
// demands correct rounding, -1 where the result is exact.
double ulpsOf(PointOp op) {
  switch (op) {
    case PointOp::Abs:
    case PointOp::Neg:
    case PointOp::Maximum:
    case PointOp::Minimum:
    case PointOp::Where:
    case PointOp::Ceil:
    case PointOp::Floor:
    case PointOp::Round:
    case PointOp::Trunc:
    case PointOp::Sign:
    case PointOp::Frac:
    case PointOp::NextAfter:
      return -1;
    case PointOp::Add:
    case PointOp::Sub:
    case PointOp::Mul:
    case PointOp::Fma:
    case PointOp::Sqrt:
      return 0.5;
    case PointOp::Div:
    case PointOp::Reciprocal:
      return 1;
    case PointOp::Fmod:
    case PointOp::Remainder:
      return 1;
    case PointOp::Rsqrt:
      return 2;
    case PointOp::Sigmoid:
    case PointOp::Tanh:
    case PointOp::Erfc:
      return 6;
    case PointOp::Pow:
    case PointOp::Erfinv:
      return 8;
    default:
      return 4;
  }
}

// Below this the results of functions may be flushed or lose bits.
double smallest(DataType type, double ulps) {
  if (ulps <= 1) {
    return type == DataType::Double ? 0x1p-1074 : 0x1p-149;
  }
  return type == DataType::Double ? 0x1p-1022 : 0x1p-126;
}

double distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0;
  }
  double d = std::fabs(a - b);
  return std::isnan(d) ? kInfinity : d;
}

bool isJump(PointOp op) {
  switch (op) {
    case PointOp::Ceil:
    case PointOp::Floor:
    case PointOp::Frac:
    case PointOp::Round:
    case PointOp::Sign:
    case PointOp::Trunc:
    case PointOp::Signbit:
    case PointOp::IsFinite:
    case PointOp::IsInf:
    case PointOp::IsNan:
    case PointOp::IsNegInf:
    case PointOp::IsPosInf:
      return true;
    default:
      return false;
  }
}

// One element: operands and their bounds, the result of the op on the operands.
struct Element {
  PointOp op;
  DataType type;
  std::array<double, 3> value{};
  std::array<double, 3> error{};
  double result = 0;
  bool uncertain = false;

  double at(double a, double b) const { return applyReal(op, type, a, b, value[2]); }

  // The largest change of the result over the ends of the operands' intervals.
  double span() const {
    double change = 0;
    const int arity = info(op).arity;
    for (double a : {value[0] - error[0], value[0] + error[0]}) {
      if (arity == 1) {
        change = std::max(change, distance(at(a, 0), result));
        continue;
      }
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
    bool unclear = distance(value[0], value[1]) <= error[0] + error[1];
    uncertain = unclear;
    return unclear ? 1 : 0;
  }

  double remainderError() {
    double turns = value[0] / value[1];
    double change = quotientError();
    bool jumps = !std::isfinite(change) || std::floor(turns - change) != std::floor(turns + change) ||
                 std::trunc(turns - change) != std::trunc(turns + change);
    uncertain = jumps;
    return jumps ? std::fabs(value[1]) + error[1] + error[0] : error[0] + std::fabs(turns) * error[1];
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
    auto [a, b, c] = value;
    switch (op) {
      case PointOp::Abs:
      case PointOp::Neg:
      case PointOp::Sin:
      case PointOp::Cos:
        return error[0];
      case PointOp::Add:
      case PointOp::Sub:
        return error[0] + error[1];
      case PointOp::Maximum:
      case PointOp::Minimum:
        return std::max(error[0], error[1]);
      case PointOp::Fma:
        return std::fabs(a) * error[1] + std::fabs(b) * error[0] + error[0] * error[1] + error[2];
      case PointOp::Mul: {
        // 0 * infinity: a bound of nothing times an infinite element is an exact NaN or infinity
        double left = error[1] == 0 ? 0 : std::fabs(a) * error[1];
        double right = error[0] == 0 ? 0 : std::fabs(b) * error[0];
        return left + right + error[0] * error[1];
      }
      case PointOp::Div:
        return quotientError();
      case PointOp::Fmod:
      case PointOp::Remainder:
        return remainderError();
      case PointOp::Where:
        return whereError();
      case PointOp::NextAfter:
        return error[0] + error[1] + std::fabs(a) * 4 * unitOf(type);
      case PointOp::Eq:
      case PointOp::Ne:
      case PointOp::Gt:
      case PointOp::Ge:
      case PointOp::Lt:
      case PointOp::Le:
        return comparisonError();
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

  double bound() {
    double change = carried();
    double ulps = ulpsOf(op);
    if (info(op).givesBool || ulps < 0) {
      return change;
    }
    double size = std::fabs(result);
    if (!std::isfinite(size)) {
      return change;
    }
    if (op == PointOp::Lgamma) {
      size = std::max(size, 1.0);  // relative to 1 near its zeros
    }
    return change + (2 + 2 * ulps) * unitOf(type) * size + smallest(type, ulps);
  }
};

// Bounds of integer and Bool elements: exact, or off by what add, sub and mul make of it, or unknown.
double wholeBound(PointOp op, DataType dtype, std::span<const int64_t> value, std::span<const double> error,
                  bool& uncertain) {
  if (error[0] == 0 && error[1] == 0 && error[2] == 0) {
    return 0;
  }
  auto size = [&](int k) { return std::fabs(static_cast<double>(value[k])); };
  switch (op) {
    case PointOp::Neg:
    case PointOp::Abs:
    case PointOp::CheckedIndex:
      return error[0];
    case PointOp::Add:
    case PointOp::Sub:
      return error[0] + error[1];
    case PointOp::Mul:
      return size(0) * error[1] + size(1) * error[0] + error[0] * error[1];
    case PointOp::Maximum:
    case PointOp::Minimum:
      return std::max(error[0], error[1]);
    case PointOp::Where: {
      if (error[0] > 0) {
        return std::fabs(static_cast<double>(value[1]) - static_cast<double>(value[2])) + std::max(error[1], error[2]);
      }
      return value[0] != 0 ? error[1] : error[2];
    }
    case PointOp::Eq:
    case PointOp::Ne:
    case PointOp::Gt:
    case PointOp::Ge:
    case PointOp::Lt:
    case PointOp::Le:
      uncertain = std::fabs(static_cast<double>(value[0]) - static_cast<double>(value[1])) <= error[0] + error[1];
      return uncertain ? 1 : 0;
    default:
      break;
  }
  uncertain = true;
  return dtype == DataType::Bool ? 1 : kInfinity;
}

// Offsets of an operand for every element of the result.
std::vector<int64_t> operandOffsets(PointOp op, const Array& x, const Sizes& sizes) {
  if (x.sizes == sizes) {
    return {};
  }
  std::vector<int64_t> strides(sizes.size(), 0);
  if (!x.sizes.empty()) {
    invariant(x.sizes.size() == sizes.size(), "[interpret] {}: an operand has {} dims, the result {}", info(op).name,
              x.sizes.size(), sizes.size());
    std::vector<int64_t> own = contiguousStrides(x.sizes);
    for (size_t k = 0; k < sizes.size(); k++) {
      strides[k] = x.sizes[k] == 1 && sizes[k] != 1 ? 0 : own[k];
      check(x.sizes[k] == sizes[k] || x.sizes[k] == 1,
            "[{}] extents differ in dim {}: {} and {}; expected equal extents", info(op).name, k, x.sizes[k], sizes[k]);
    }
  }
  return stridedOffsets(sizes, strides);
}

}  // namespace

double unitOf(DataType dtype) { return isFloatingPoint(dtype) ? std::ldexp(1.0, -info(dtype).mantissaBits) : 0; }

Array pointArray(PointOp op, std::span<const Array* const> operands, DataType type, DataType dtype, const Sizes& sizes,
                 const Context& context) {
  const size_t first = op == PointOp::Where ? 1 : 0;  // its condition stays Bool
  const bool floating = isFloatingPoint(type);
  Array result = makeArray(dtype, sizes);
  std::array<std::vector<int64_t>, 3> offsets;
  bool track = false;
  for (size_t k = 0; k < operands.size(); k++) {
    offsets[k] = operandOffsets(op, *operands[k], sizes);
    track = track || !operands[k]->error.empty();
  }
  track = context.bounds && (track || (floating && !info(op).givesBool && ulpsOf(op) >= 0));

  const int64_t total = result.numel();
  std::array<double, 3> real{};
  std::array<int64_t, 3> whole{};
  std::array<double, 3> error{};
  for (int64_t i = 0; i < total; i++) {
    for (size_t k = 0; k < operands.size(); k++) {
      int64_t at = offsets[k].empty() ? i : offsets[k][i];
      if (floating) {
        double v = operands[k]->value(at);
        real[k] = k < first || operands[k]->dtype == type ? v : roundTo(type, v);
      } else {
        int64_t v = operands[k]->integer(at);
        whole[k] = k < first || operands[k]->dtype == type ? v : wrapInteger(type, v);
      }
      error[k] = operands[k]->errorAt(at);
    }
    double outcome = 0;
    if (floating) {
      outcome = applyReal(op, type, real[0], real[1], real[2]);
      if (result.floating()) {
        result.setReal(i, outcome);
      } else {
        result.setWhole(i, static_cast<int64_t>(outcome));
      }
    } else {
      result.setWhole(i, applyWhole(op, type, whole[0], whole[1], whole[2]));
    }
    if (track) {
      Element element{op, type, real, error, outcome};
      bool uncertain = false;
      double bound = 0;
      if (floating) {
        bound = element.bound();
        uncertain = element.uncertain;
      } else {
        bound = wholeBound(op, dtype, whole, error, uncertain);
      }
      result.setError(i, bound);
      result.uncertain += uncertain ? 1 : 0;
    }
  }
  return result;
}

namespace {

bool fitsInteger(DataType dtype, double value) {
  double limit = std::ldexp(1.0, bitWidth(dtype) - 1);
  return value > -limit - 1 && value < limit;
}

// Rounds towards zero; values that do not fit, and NaN, give the minimum.
int64_t truncated(DataType dtype, double value) {
  return fitsInteger(dtype, value) ? static_cast<int64_t>(value) : lowestInteger(dtype);
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
  for (int64_t i = 0; i < x.numel(); i++) {
    double v = x.value(i);
    if (dtype == DataType::Float && !x.floating()) {
      result.real[i] = static_cast<float>(x.whole[i]);  // by way of double would round twice
    } else if (result.floating()) {
      result.setReal(i, v);
    } else if (x.floating()) {
      result.whole[i] = dtype == DataType::Bool ? (v != 0 ? 1 : 0) : truncated(dtype, v);
    } else {
      result.setWhole(i, x.whole[i]);
    }
    double e = x.errorAt(i);
    bool foreign = context.bounds && toInteger && !fitsInteger(dtype, v);  // C leaves the value open
    if (e == 0 && !foreign) {
      continue;
    }
    double now = castElement(dtype, v);
    double change = std::max(distance(castElement(dtype, v - e), now), distance(castElement(dtype, v + e), now));
    if (dtype == DataType::Bool && std::fabs(v) <= e) {
      change = 1;
    }
    result.setError(i, foreign ? kInfinity : change);
    result.uncertain +=
        !result.floating() && (x.floating() || dtype == DataType::Bool) && (foreign || change > 0) ? 1 : 0;
  }
  return result;
}

Array bitCastArray(const Array& x, DataType dtype) {
  Tensor bits = toTensor(x);
  Array result = toArray(Tensor::wrap(bits.data(), x.sizes, contiguousStrides(x.sizes), dtype, bits.storage()));
  for (int64_t i = 0; i < x.numel(); i++) {
    if (x.errorAt(i) > 0) {
      result.setUncertain(i);
    }
  }
  return result;
}

}  // namespace meshfuse::reference
