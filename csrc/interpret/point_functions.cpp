#include "interpret/point_functions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/refused_index.h"
#include "interpret/array.h"

namespace meshfuse::reference {

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

template <class Function>
struct Row {
  PointOp op;
  Function* compute;
};

// The functions by op; null for ops that have none here.
template <class Function, size_t N>
constexpr auto byOp(const Row<Function> (&rows)[N]) {
  std::array<Function*, kPointOps.size()> table{};
  for (const Row<Function>& row : rows) {
    table[static_cast<size_t>(row.op)] = row.compute;
  }
  return table;
}

constexpr Row<double(double)> kUnaryRows[] = {
    {PointOp::Abs, std::fabs},
    {PointOp::Acos, std::acos},
    {PointOp::Acosh, std::acosh},
    {PointOp::Asin, std::asin},
    {PointOp::Asinh, std::asinh},
    {PointOp::Atan, std::atan},
    {PointOp::Atanh, std::atanh},
    {PointOp::Ceil, std::ceil},
    {PointOp::Cos, std::cos},
    {PointOp::Cosh, std::cosh},
    {PointOp::Exp, std::exp},
    {PointOp::Exp2, std::exp2},
    {PointOp::Expm1, std::expm1},
    {PointOp::Erf, std::erf},
    {PointOp::Erfc, std::erfc},
    {PointOp::Erfinv, erfInverse},
    {PointOp::Floor, std::floor},
    {PointOp::Frac, [](double a) { return a - std::trunc(a); }},
    {PointOp::Lgamma, logGamma},
    {PointOp::Log, std::log},
    {PointOp::Log10, std::log10},
    {PointOp::Log1p, std::log1p},
    {PointOp::Log2, std::log2},
    {PointOp::Neg, [](double a) { return -a; }},
    {PointOp::Reciprocal, [](double a) { return 1 / a; }},
    {PointOp::Round, std::nearbyint},
    {PointOp::Rsqrt, [](double a) { return 1 / std::sqrt(a); }},
    {PointOp::Sigmoid, [](double a) { return 1 / (1 + std::exp(-a)); }},
    {PointOp::Sign, signOf},
    {PointOp::Signbit, [](double a) { return std::signbit(a) ? 1.0 : 0.0; }},
    {PointOp::Sin, std::sin},
    {PointOp::Sinh, std::sinh},
    {PointOp::Sqrt, std::sqrt},
    {PointOp::Tan, std::tan},
    {PointOp::Tanh, std::tanh},
    {PointOp::Trunc, std::trunc},
    {PointOp::IsFinite, [](double a) { return std::isfinite(a) ? 1.0 : 0.0; }},
    {PointOp::IsInf, [](double a) { return std::isinf(a) ? 1.0 : 0.0; }},
    {PointOp::IsNan, [](double a) { return std::isnan(a) ? 1.0 : 0.0; }},
    {PointOp::IsNegInf, [](double a) { return a == -kInfinity ? 1.0 : 0.0; }},
    {PointOp::IsPosInf, [](double a) { return a == kInfinity ? 1.0 : 0.0; }},
};

constexpr Row<double(double, double)> kBinaryRows[] = {
    {PointOp::Add, [](double a, double b) { return a + b; }},
    {PointOp::Sub, [](double a, double b) { return a - b; }},
    {PointOp::Mul, [](double a, double b) { return a * b; }},
    {PointOp::Div, [](double a, double b) { return a / b; }},
    {PointOp::Fmod, std::fmod},
    {PointOp::Remainder, flooredRemainder},
    {PointOp::Pow, std::pow},
    {PointOp::Atan2, std::atan2},
    {PointOp::Maximum, larger},
    {PointOp::Minimum, smaller},
};

constexpr auto kUnary = byOp(kUnaryRows);
constexpr auto kBinary = byOp(kBinaryRows);

// Comparisons and logic, which are the same for floating numbers and integers; nothing for other ops.
template <class T>
std::optional<bool> truthOf(PointOp op, T a, T b) {
  switch (op) {
    case PointOp::Eq:
      return a == b;
    case PointOp::Ne:
      return a != b;
    case PointOp::Gt:
      return a > b;
    case PointOp::Ge:
      return a >= b;
    case PointOp::Lt:
      return a < b;
    case PointOp::Le:
      return a <= b;
    case PointOp::LogicalNot:
      return a == 0;
    case PointOp::LogicalAnd:
      return a != 0 && b != 0;
    case PointOp::LogicalOr:
      return a != 0 || b != 0;
    case PointOp::LogicalXor:
      return (a != 0) != (b != 0);
    default:
      return std::nullopt;
  }
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
  return count < 0 || count >= bitWidth(type) ? 0 : wrapped(bits(a) << count);
}

int64_t shiftRight(DataType type, int64_t a, int64_t count) {
  return a >> (count < 0 || count >= bitWidth(type) ? 63 : count);
}

}  // namespace

double applyReal(PointOp op, DataType type, double a, double b, double c) {
  const auto k = static_cast<size_t>(op);
  if (kUnary[k] != nullptr) {
    return kUnary[k](a);
  }
  if (kBinary[k] != nullptr) {
    return kBinary[k](a, b);
  }
  if (const std::optional<bool> truth = truthOf(op, a, b)) {
    return *truth ? 1 : 0;
  }
  switch (op) {
    case PointOp::NextAfter:
      return type == DataType::Double ? std::nextafter(a, b)
                                      : std::nextafterf(static_cast<float>(a), static_cast<float>(b));
    case PointOp::Where:
      return a != 0 ? b : c;
    case PointOp::Fma:
      return std::fma(a, b, c);
    default:
      throwInternalError(fmt::format("[interpret] {} is not defined for floating-point numbers", info(op).name));
  }
}

int64_t applyWhole(PointOp op, DataType type, int64_t a, int64_t b, int64_t c) {
  if (const std::optional<bool> truth = truthOf(op, a, b)) {
    return *truth ? 1 : 0;
  }
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
      if (a < 0 || a >= b) {
        throw RefusedIndexError(fmt::format("[{}] index {} is out of range for an extent of {}; give 0 <= index < {}",
                                            info(op).name, a, b, b),
                                a, b);
      }
      return a;
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
    case PointOp::Where:
      return a != 0 ? b : c;
    default:
      throwInternalError(fmt::format("[interpret] {} is not defined for integers", info(op).name));
  }
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
  for (int64_t step = 0; step < 4; step++) {
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
