#include "interpret/point_functions.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "interpret/array.h"

namespace meshfuse::reference {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();

double signOf(double a) { return std::isnan(a) ? kNan : a > 0 ? 1 : a < 0 ? -1 : 0; }

// Sign of the divisor.
double flooredRemainder(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNan : a < b ? b : a; }
double smaller(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNan : b < a ? b : a; }

double logGamma(double a) {
  int sign = 0;
  return lgamma_r(a, &sign);
}

double unaryReal(PointOp op, double a) {
  switch (op) {
    case PointOp::Abs:
      return std::fabs(a);
    case PointOp::Acos:
      return std::acos(a);
    case PointOp::Acosh:
      return std::acosh(a);
    case PointOp::Asin:
      return std::asin(a);
    case PointOp::Asinh:
      return std::asinh(a);
    case PointOp::Atan:
      return std::atan(a);
    case PointOp::Atanh:
      return std::atanh(a);
    case PointOp::Ceil:
      return std::ceil(a);
    case PointOp::Cos:
      return std::cos(a);
    case PointOp::Cosh:
      return std::cosh(a);
    case PointOp::Exp:
      return std::exp(a);
    case PointOp::Exp2:
      return std::exp2(a);
    case PointOp::Expm1:
      return std::expm1(a);
    case PointOp::Erf:
      return std::erf(a);
    case PointOp::Erfc:
      return std::erfc(a);
    case PointOp::Erfinv:
      return erfInverse(a);
    case PointOp::Floor:
      return std::floor(a);
    case PointOp::Frac:
      return a - std::trunc(a);
    case PointOp::Lgamma:
      return logGamma(a);
    case PointOp::Log:
      return std::log(a);
    case PointOp::Log10:
      return std::log10(a);
    case PointOp::Log1p:
      return std::log1p(a);
    case PointOp::Log2:
      return std::log2(a);
    case PointOp::Neg:
      return -a;
    case PointOp::Reciprocal:
      return 1 / a;
    case PointOp::Round:
      return std::nearbyint(a);
    case PointOp::Rsqrt:
      return 1 / std::sqrt(a);
    case PointOp::Sigmoid:
      return 1 / (1 + std::exp(-a));
    case PointOp::Sign:
      return signOf(a);
    case PointOp::Signbit:
      return std::signbit(a) ? 1 : 0;
    case PointOp::Sin:
      return std::sin(a);
    case PointOp::Sinh:
      return std::sinh(a);
    case PointOp::Sqrt:
      return std::sqrt(a);
    case PointOp::Tan:
      return std::tan(a);
    case PointOp::Tanh:
      return std::tanh(a);
    case PointOp::Trunc:
      return std::trunc(a);
    case PointOp::LogicalNot:
      return a == 0 ? 1 : 0;
    case PointOp::IsFinite:
      return std::isfinite(a) ? 1 : 0;
    case PointOp::IsInf:
      return std::isinf(a) ? 1 : 0;
    case PointOp::IsNan:
      return std::isnan(a) ? 1 : 0;
    case PointOp::IsNegInf:
      return std::isinf(a) && a < 0 ? 1 : 0;
    case PointOp::IsPosInf:
      return std::isinf(a) && a > 0 ? 1 : 0;
    default:
      break;
  }
  throwInternalError(fmt::format("[interpret] {} is not defined for floating-point numbers", info(op).name));
}

double binaryReal(PointOp op, DataType type, double a, double b) {
  switch (op) {
    case PointOp::Add:
      return a + b;
    case PointOp::Sub:
      return a - b;
    case PointOp::Mul:
      return a * b;
    case PointOp::Div:
      return a / b;
    case PointOp::Fmod:
      return std::fmod(a, b);
    case PointOp::Remainder:
      return flooredRemainder(a, b);
    case PointOp::Pow:
      return std::pow(a, b);
    case PointOp::Atan2:
      return std::atan2(a, b);
    case PointOp::Maximum:
      return larger(a, b);
    case PointOp::Minimum:
      return smaller(a, b);
    case PointOp::NextAfter:
      return type == DataType::Double ? std::nextafter(a, b)
                                      : std::nextafterf(static_cast<float>(a), static_cast<float>(b));
    case PointOp::Eq:
      return a == b ? 1 : 0;
    case PointOp::Ne:
      return a != b ? 1 : 0;
    case PointOp::Gt:
      return a > b ? 1 : 0;
    case PointOp::Ge:
      return a >= b ? 1 : 0;
    case PointOp::Lt:
      return a < b ? 1 : 0;
    case PointOp::Le:
      return a <= b ? 1 : 0;
    case PointOp::LogicalAnd:
      return a != 0 && b != 0 ? 1 : 0;
    case PointOp::LogicalOr:
      return a != 0 || b != 0 ? 1 : 0;
    case PointOp::LogicalXor:
      return (a != 0) != (b != 0) ? 1 : 0;
    default:
      break;
  }
  throwInternalError(fmt::format("[interpret] {} is not defined for floating-point numbers", info(op).name));
}

// -- integers ---------------------------------------------------------------------------------------------------------------

int64_t wrapped(uint64_t value) { return static_cast<int64_t>(value); }
uint64_t bits(int64_t value) { return static_cast<uint64_t>(value); }

int64_t quotient(int64_t a, int64_t b) { return b == 0 ? 0 : b == -1 ? wrapped(0 - bits(a)) : a / b; }
int64_t remainderTruncated(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

int64_t remainderFloored(int64_t a, int64_t b) {
  int64_t r = remainderTruncated(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t quotientUp(int64_t a, int64_t b) {
  int64_t q = quotient(a, b);
  bool exact = remainderTruncated(a, b) == 0;
  return !exact && (a < 0) == (b < 0) ? q + 1 : q;
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  uint64_t result = 1;
  uint64_t square = bits(base);
  for (; exponent > 0; exponent /= 2) {
    result *= exponent % 2 == 1 ? square : 1;
    square *= square;
  }
  return wrapped(result);
}

int64_t greatestDivisor(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - bits(a) : bits(a);
  uint64_t y = b < 0 ? 0 - bits(b) : bits(b);
  while (y != 0) {
    x = std::exchange(y, x % y);
  }
  return wrapped(x);
}

int64_t shiftLeft(DataType type, int64_t a, int64_t count) {
  int width = bitWidth(type);
  return count < 0 || count >= width ? 0 : wrapped(bits(a) << count);
}

int64_t shiftRight(DataType type, int64_t a, int64_t count) {
  int width = bitWidth(type);
  if (count < 0) {
    return 0;
  }
  return count >= width ? (a < 0 ? -1 : 0) : a >> count;
}

}  // namespace

double applyReal(PointOp op, DataType type, double a, double b, double c) {
  switch (info(op).arity) {
    case 1:
      return unaryReal(op, a);
    case 2:
      return binaryReal(op, type, a, b);
    default:
      return op == PointOp::Fma ? std::fma(a, b, c) : a != 0 ? b : c;
  }
}

int64_t applyWhole(PointOp op, DataType type, int64_t a, int64_t b, int64_t c) {
  switch (op) {
    case PointOp::Abs:
      return a < 0 ? wrapped(0 - bits(a)) : a;
    case PointOp::Neg:
      return wrapped(0 - bits(a));
    case PointOp::Sign:
      return a > 0 ? 1 : a < 0 ? -1 : 0;
    case PointOp::Signbit:
      return a < 0 ? 1 : 0;
    case PointOp::BitwiseNot:
      return type == DataType::Bool ? (a == 0 ? 1 : 0) : ~a;
    case PointOp::LogicalNot:
      return a == 0 ? 1 : 0;
    case PointOp::Add:
      return wrapped(bits(a) + bits(b));
    case PointOp::Sub:
      return wrapped(bits(a) - bits(b));
    case PointOp::Mul:
      return wrapped(bits(a) * bits(b));
    case PointOp::Div:
      return quotient(a, b);
    case PointOp::Fmod:
    case PointOp::Mod:
      return remainderTruncated(a, b);
    case PointOp::Remainder:
      return remainderFloored(a, b);
    case PointOp::CeilDiv:
      return quotientUp(a, b);
    case PointOp::Pow:
      return power(a, b);
    case PointOp::Maximum:
      return a < b ? b : a;
    case PointOp::Minimum:
      return b < a ? b : a;
    case PointOp::Gcd:
      return greatestDivisor(a, b);
    case PointOp::CheckedIndex:
      check(a >= 0 && a < b, "[{}] index {} is out of range for an extent of {}; give 0 <= index < {}", info(op).name,
            a, b, b);
      return a;
    case PointOp::Eq:
      return a == b ? 1 : 0;
    case PointOp::Ne:
      return a != b ? 1 : 0;
    case PointOp::Gt:
      return a > b ? 1 : 0;
    case PointOp::Ge:
      return a >= b ? 1 : 0;
    case PointOp::Lt:
      return a < b ? 1 : 0;
    case PointOp::Le:
      return a <= b ? 1 : 0;
    case PointOp::BitwiseAnd:
      return a & b;
    case PointOp::BitwiseOr:
      return a | b;
    case PointOp::BitwiseXor:
      return a ^ b;
    case PointOp::Shl:
      return shiftLeft(type, a, b);
    case PointOp::Shr:
      return shiftRight(type, a, b);
    case PointOp::LogicalAnd:
      return a != 0 && b != 0 ? 1 : 0;
    case PointOp::LogicalOr:
      return a != 0 || b != 0 ? 1 : 0;
    case PointOp::LogicalXor:
      return (a != 0) != (b != 0) ? 1 : 0;
    case PointOp::Where:
      return a != 0 ? b : c;
    default:
      break;
  }
  invariant(a != kLowest || op != PointOp::Fma, "[interpret] fma is not defined for integers");
  throwInternalError(fmt::format("[interpret] {} is not defined for integers", info(op).name));
}

double erfInverse(double y) {
  if (std::isnan(y) || std::fabs(y) > 1) {
    return kNan;
  }
  if (std::fabs(y) == 1) {
    return y * kInfinity;
  }
  if (y == 0) {
    return y;
  }
  // Winitzki's approximation (2008) is right to 0.2%; Halley steps on erf, or on erfc where erf is flat, do the rest.
  constexpr double kShape = 0.147;
  double tail = std::log1p(-y * y);
  double half = 2 / (std::numbers::pi * kShape) + tail / 2;
  double x = std::copysign(std::sqrt(std::sqrt(half * half - tail / kShape) - half), y);
  for (int step = 0; step < 4; step++) {
    double off = std::fabs(y) < 0.5 ? std::erf(x) - y : ((1 - std::fabs(y)) - std::erfc(std::fabs(x))) * signOf(y);
    double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-x * x);
    if (off == 0 || slope == 0) {
      break;
    }
    double newton = off / slope;
    x -= newton / (1 + x * newton);
  }
  return x;
}

}  // namespace meshfuse::reference
