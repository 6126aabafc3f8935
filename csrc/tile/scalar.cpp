#include "tile/scalar.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "tensor/half.h"

namespace meshfuse::tile {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double roundTo(double value, DataType dtype) {
  if (isHalfPrecision(dtype)) {
    return float16ToFloat(dtype, floatToFloat16(dtype, static_cast<float>(value)));
  }
  return dtype == DataType::Float ? static_cast<float>(value) : value;
}

int64_t wrap(uint64_t value, DataType dtype) { return wrapInteger(dtype, static_cast<int64_t>(value)); }

// Winitzki's approximation, then Newton's method on erf(x) - y (on erfc near 1, where erf is flat).
double inverseErf(double y) {
  if (std::isnan(y) || std::abs(y) > 1) {
    return kNaN;
  }
  if (std::abs(y) == 1) {
    return std::copysign(kInfinity, y);
  }
  if (std::abs(y) < 1e-8) {
    return y * 0.88622692545275801365;  // sqrt(pi) / 2: the next term is y^3
  }
  double a = std::abs(y);
  double l = std::log1p(-a * a);
  double t = 2 / (M_PI * 0.147) + l / 2;
  double x = std::sqrt(std::sqrt(t * t - l / 0.147) - t);
  for (int i = 0; i < 4; i++) {
    double error = a > 0.5 ? (1 - a) - std::erfc(x) : std::erf(x) - a;
    x -= error / (M_2_SQRTPI * std::exp(-x * x));
  }
  return std::copysign(x, y);
}

double floatingRemainder(double a, double b) {
  double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double logGamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);  // std::lgamma writes a global
}

double unaryReal(PointOp op, double x) {
  using enum PointOp;
  switch (op) {
    case Abs:
      return std::abs(x);
    case Acos:
      return std::acos(x);
    case Acosh:
      return std::acosh(x);
    case Asin:
      return std::asin(x);
    case Asinh:
      return std::asinh(x);
    case Atan:
      return std::atan(x);
    case Atanh:
      return std::atanh(x);
    case Ceil:
      return std::ceil(x);
    case Cos:
      return std::cos(x);
    case Cosh:
      return std::cosh(x);
    case Exp:
      return std::exp(x);
    case Exp2:
      return std::exp2(x);
    case Expm1:
      return std::expm1(x);
    case Erf:
      return std::erf(x);
    case Erfc:
      return std::erfc(x);
    case Erfinv:
      return inverseErf(x);
    case Floor:
      return std::floor(x);
    case Frac:
      return x - std::trunc(x);
    case Lgamma:
      return logGamma(x);
    case Log:
      return std::log(x);
    case Log10:
      return std::log10(x);
    case Log1p:
      return std::log1p(x);
    case Log2:
      return std::log2(x);
    case Neg:
      return -x;
    case Reciprocal:
      return 1 / x;
    case Round:
      return std::nearbyint(x);
    case Rsqrt:
      return 1 / std::sqrt(x);
    case Sigmoid:
      return 1 / (1 + std::exp(-x));
    case Sign:
      return std::isnan(x) ? x : (x > 0 ? 1 : 0) - (x < 0 ? 1 : 0);
    case Sin:
      return std::sin(x);
    case Sinh:
      return std::sinh(x);
    case Sqrt:
      return std::sqrt(x);
    case Tan:
      return std::tan(x);
    case Tanh:
      return std::tanh(x);
    case Trunc:
      return std::trunc(x);
    default:
      throwInternalError(fmt::format("[tile] {} is not a unary operation on floating values", info(op).name));
  }
}

double binaryReal(PointOp op, DataType dtype, double a, double b) {
  using enum PointOp;
  switch (op) {
    case Add:
      return a + b;
    case Sub:
      return a - b;
    case Mul:
      return a * b;
    case Div:
      return a / b;
    case Fmod:
      return std::fmod(a, b);
    case Remainder:
      return floatingRemainder(a, b);
    case Pow:
      return std::pow(a, b);
    case Atan2:
      return std::atan2(a, b);
    case Maximum:
      return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b);
    case Minimum:
      return std::isnan(a) || std::isnan(b) ? kNaN : std::min(a, b);
    case NextAfter:
      return dtype == DataType::Float ? std::nextafterf(static_cast<float>(a), static_cast<float>(b))
                                      : std::nextafter(a, b);
    default:
      throwInternalError(fmt::format("[tile] {} is not a binary operation on floating values", info(op).name));
  }
}

// Truth of tests and comparisons, on either kind of operand.
template <class T>
bool truth(PointOp op, T a, T b) {
  using enum PointOp;
  switch (op) {
    case Eq:
      return a == b;
    case Ne:
      return a != b;
    case Gt:
      return a > b;
    case Ge:
      return a >= b;
    case Lt:
      return a < b;
    case Le:
      return a <= b;
    case LogicalNot:
      return a == T(0);
    case LogicalAnd:
      return a != T(0) && b != T(0);
    case LogicalOr:
      return a != T(0) || b != T(0);
    case LogicalXor:
      return (a != T(0)) != (b != T(0));
    case Signbit:
      return std::signbit(static_cast<double>(a));
    case IsFinite:
      return std::isfinite(static_cast<double>(a));
    case IsInf:
      return std::isinf(static_cast<double>(a));
    case IsNan:
      return std::isnan(static_cast<double>(a));
    case IsNegInf:
      return static_cast<double>(a) == -kInfinity;
    case IsPosInf:
      return static_cast<double>(a) == kInfinity;
    default:
      throwInternalError(fmt::format("[tile] {} gives no Bool", info(op).name));
  }
}

// Operands are in the type's range, so only the minimum of Int divided by -1 could trap; it wraps.
int64_t quotient(int64_t a, int64_t b) {
  if (b == 0) {
    return 0;
  }
  return b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}
int64_t remainderOf(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }

uint64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    return base == 1 ? 1 : base != -1 ? 0 : (exponent % 2 == 0 ? 1 : ~uint64_t{0});
  }
  uint64_t result = 1;
  uint64_t square = static_cast<uint64_t>(base);
  for (; exponent != 0; exponent >>= 1, square *= square) {
    result *= (exponent & 1) != 0 ? square : 1;
  }
  return result;
}

uint64_t greatestDivisor(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a);
  uint64_t y = b < 0 ? 0 - static_cast<uint64_t>(b) : static_cast<uint64_t>(b);
  while (y != 0) {
    uint64_t r = x % y;
    x = y;
    y = r;
  }
  return x;
}

uint64_t integerPoint(PointOp op, DataType dtype, int64_t a, int64_t b) {
  using enum PointOp;
  uint64_t ua = static_cast<uint64_t>(a);
  uint64_t ub = static_cast<uint64_t>(b);
  int64_t width = bitWidth(dtype);
  switch (op) {
    case Abs:
      return a < 0 ? 0 - ua : ua;
    case Neg:
      return 0 - ua;
    case Sign:
      return static_cast<uint64_t>((a > 0 ? 1 : 0) - (a < 0 ? 1 : 0));
    case BitwiseNot:
      return dtype == DataType::Bool ? 1 - ua : ~ua;
    case Add:
      return ua + ub;
    case Sub:
      return ua - ub;
    case Mul:
      return ua * ub;
    case Div:
      return static_cast<uint64_t>(quotient(a, b));
    case Fmod:
    case Mod:
      return static_cast<uint64_t>(remainderOf(a, b));
    case Remainder: {
      int64_t r = remainderOf(a, b);
      return static_cast<uint64_t>(r != 0 && (r < 0) != (b < 0) ? r + b : r);
    }
    case CeilDiv: {
      bool up = remainderOf(a, b) != 0 && (a < 0) == (b < 0);
      return static_cast<uint64_t>(quotient(a, b)) + (up ? 1 : 0);
    }
    case Pow:
      return power(a, b);
    case Maximum:
      return static_cast<uint64_t>(std::max(a, b));
    case Minimum:
      return static_cast<uint64_t>(std::min(a, b));
    case Gcd:
      return greatestDivisor(a, b);
    case CheckedIndex:
      check(0 <= a && a < b, "[tile] index {} is out of range for an extent of {}; give 0 <= index < {}", a, b, b);
      return ua;
    case BitwiseAnd:
      return ua & ub;
    case BitwiseOr:
      return ua | ub;
    case BitwiseXor:
      return ua ^ ub;
    case Shl:
      return b < 0 || b >= width ? 0 : ua << b;
    case Shr:
      return b < 0 ? 0 : static_cast<uint64_t>(a >> std::min<int64_t>(b, 63));
    default:
      throwInternalError(fmt::format("[tile] {} is not an operation on integers", info(op).name));
  }
}

}  // namespace

Scalar applyPoint(PointOp op, DataType dtype, std::span<const Scalar> x) {
  if (op == PointOp::Where) {
    return x[0].integer != 0 ? x[1] : x[2];
  }
  bool binary = info(op).arity >= 2;
  if (isFloatingPoint(dtype)) {
    double a = x[0].real;
    if (info(op).givesBool) {
      return integerScalar(truth(op, a, binary ? x[1].real : 0.0) ? 1 : 0);
    }
    if (op == PointOp::Fma) {
      return realScalar(dtype == DataType::Float ? std::fmaf(static_cast<float>(a), static_cast<float>(x[1].real),
                                                             static_cast<float>(x[2].real))
                                                 : std::fma(a, x[1].real, x[2].real));
    }
    return realScalar(roundTo(binary ? binaryReal(op, dtype, a, x[1].real) : unaryReal(op, a), dtype));
  }
  int64_t a = x[0].integer;
  int64_t b = binary ? x[1].integer : 0;
  if (op == PointOp::Signbit) {
    return integerScalar(a < 0 ? 1 : 0);
  }
  if (info(op).givesBool) {
    return integerScalar(truth(op, a, b) ? 1 : 0);
  }
  return integerScalar(wrap(integerPoint(op, dtype, a, b), dtype));
}

Scalar castScalar(Scalar value, DataType from, DataType to) {
  if (isFloatingPoint(to)) {
    if (isFloatingPoint(from)) {
      return realScalar(roundTo(value.real, to));
    }
    if (to == DataType::Double) {
      return realScalar(static_cast<double>(value.integer));
    }
    return realScalar(roundTo(static_cast<float>(value.integer), to));
  }
  if (!isFloatingPoint(from)) {
    return integerScalar(wrap(static_cast<uint64_t>(value.integer), to));
  }
  if (to == DataType::Bool) {
    return integerScalar(value.real != 0 ? 1 : 0);
  }
  double bound = std::ldexp(1.0, bitWidth(to) - 1);
  double whole = std::trunc(value.real);
  return integerScalar(std::isnan(whole) ? 0
                       : whole >= bound  ? highestInteger(to)
                       : whole < -bound  ? lowestInteger(to)
                                         : static_cast<int64_t>(whole));
}

Reduction::Reduction(ReduceOp op, DataType dtype)
    : op_(op), dtype_(dtype), real_(floatingIdentity(op)), integer_(integerIdentity(op, dtype)) {}

void Reduction::add(Scalar value) {
  if (!isFloatingPoint(dtype_)) {
    integer_ = applyPoint(combineOp(op_, dtype_), dtype_, std::array{integerScalar(integer_), value}).integer;
    return;
  }
  long double x = value.real;
  switch (op_) {
    case ReduceOp::Sum:
      real_ += x;
      return;
    case ReduceOp::Prod:
      real_ *= x;
      return;
    case ReduceOp::Max:
      real_ = std::isnan(x) || x > real_ ? x : real_;
      return;
    case ReduceOp::Min:
      real_ = std::isnan(x) || x < real_ ? x : real_;
      return;
    default:
      throwInternalError(fmt::format("[tile] {} of floating values", name(op_)));
  }
}

Scalar Reduction::result() const {
  return isFloatingPoint(dtype_) ? realScalar(roundTo(static_cast<double>(real_), dtype_)) : integerScalar(integer_);
}

namespace {

template <class T>
T readAs(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void writeAs(void* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

}  // namespace

Scalar readElement(const void* at, DataType dtype) {
  return withElementType(dtype, [&]<class T>() -> Scalar {
    if constexpr (std::is_same_v<T, Float16Bits>) {
      return realScalar(float16ToFloat(dtype, readAs<T>(at).bits));
    } else if constexpr (std::is_same_v<T, bool>) {
      return integerScalar(readAs<uint8_t>(at) != 0 ? 1 : 0);
    } else if constexpr (std::is_integral_v<T>) {
      return integerScalar(readAs<T>(at));
    } else {
      return realScalar(readAs<T>(at));
    }
  });
}

void writeElement(void* at, DataType dtype, Scalar value) {
  withElementType(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, Float16Bits>) {
      writeAs(at, floatToFloat16(dtype, static_cast<float>(value.real)));
    } else if constexpr (std::is_same_v<T, bool>) {
      writeAs(at, static_cast<uint8_t>(value.integer != 0 ? 1 : 0));
    } else if constexpr (std::is_integral_v<T>) {
      writeAs(at, static_cast<T>(value.integer));
    } else {
      writeAs(at, static_cast<T>(value.real));
    }
  });
}

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counterHigh, uint64_t counterLow) {
  auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  std::array<uint32_t, 4> c = {low(counterLow), high(counterLow), low(counterHigh), high(counterHigh)};
  uint32_t k0 = low(key);
  uint32_t k1 = high(key);
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {high(p1) ^ c[1] ^ k0, low(p1), high(p0) ^ c[3] ^ k1, low(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace meshfuse::tile
