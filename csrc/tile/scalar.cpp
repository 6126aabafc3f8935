#include "tile/scalar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>

#include "base/error.h"
#include "tensor/half.h"
#include "tensor/tensor.h"

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
  for (int64_t i = 0; i < 4; i++) {
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

// The functions of ops.
template <class F>
struct OpFunction {
  PointOp op;
  F* function;
};

template <class F, size_t n>
F& functionOf(const OpFunction<F> (&rows)[n], PointOp op, std::string_view otherwise) {
  const auto* row = std::ranges::find(rows, op, &OpFunction<F>::op);
  if (row == std::end(rows)) {
    throwInternalError(fmt::format("[tile] {} {}", info(op).name, otherwise));
  }
  return *row->function;
}

constexpr OpFunction<double(double)> kUnaryReal[] = {
    {PointOp::Abs, std::abs},
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
    {PointOp::Erfinv, inverseErf},
    {PointOp::Floor, std::floor},
    {PointOp::Frac, [](double x) { return x - std::trunc(x); }},
    {PointOp::Lgamma, logGamma},
    {PointOp::Log, std::log},
    {PointOp::Log10, std::log10},
    {PointOp::Log1p, std::log1p},
    {PointOp::Log2, std::log2},
    {PointOp::Neg, [](double x) { return -x; }},
    {PointOp::Reciprocal, [](double x) { return 1 / x; }},
    {PointOp::Round, std::nearbyint},
    {PointOp::Rsqrt, [](double x) { return 1 / std::sqrt(x); }},
    {PointOp::Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {PointOp::Sign, [](double x) { return std::isnan(x) ? x : (x > 0 ? 1 : 0) - (x < 0 ? 1 : 0); }},
    {PointOp::Sin, std::sin},
    {PointOp::Sinh, std::sinh},
    {PointOp::Sqrt, std::sqrt},
    {PointOp::Tan, std::tan},
    {PointOp::Tanh, std::tanh},
    {PointOp::Trunc, std::trunc},
};

constexpr OpFunction<double(double, double)> kBinaryReal[] = {
    {PointOp::Add, [](double a, double b) { return a + b; }},
    {PointOp::Sub, [](double a, double b) { return a - b; }},
    {PointOp::Mul, [](double a, double b) { return a * b; }},
    {PointOp::Div, [](double a, double b) { return a / b; }},
    {PointOp::Fmod, std::fmod},
    {PointOp::Remainder, floatingRemainder},
    {PointOp::Pow, std::pow},
    {PointOp::Atan2, std::atan2},
    {PointOp::Maximum, [](double a, double b) { return std::isnan(a) || std::isnan(b) ? kNaN : std::max(a, b); }},
    {PointOp::Minimum, [](double a, double b) { return std::isnan(a) || std::isnan(b) ? kNaN : std::min(a, b); }},
    {PointOp::NextAfter, std::nextafter},
};

double binaryReal(PointOp op, DataType dtype, double a, double b) {
  return op == PointOp::NextAfter && dtype == DataType::Float
             ? std::nextafterf(static_cast<float>(a), static_cast<float>(b))
             : functionOf(kBinaryReal, op, "is not a binary operation on floating values")(a, b);
}

// Truth of tests and comparisons, on either kind of operand.
template <class T>
constexpr OpFunction<bool(T, T)> kTruth[] = {
    {PointOp::Eq, [](T a, T b) { return a == b; }},
    {PointOp::Ne, [](T a, T b) { return a != b; }},
    {PointOp::Gt, [](T a, T b) { return a > b; }},
    {PointOp::Ge, [](T a, T b) { return a >= b; }},
    {PointOp::Lt, [](T a, T b) { return a < b; }},
    {PointOp::Le, [](T a, T b) { return a <= b; }},
    {PointOp::LogicalNot, [](T a, T) { return a == T(0); }},
    {PointOp::LogicalAnd, [](T a, T b) { return a != T(0) && b != T(0); }},
    {PointOp::LogicalOr, [](T a, T b) { return a != T(0) || b != T(0); }},
    {PointOp::LogicalXor, [](T a, T b) { return (a != T(0)) != (b != T(0)); }},
    {PointOp::Signbit, [](T a, T) { return std::signbit(static_cast<double>(a)); }},
    {PointOp::IsFinite, [](T a, T) { return std::isfinite(static_cast<double>(a)); }},
    {PointOp::IsInf, [](T a, T) { return std::isinf(static_cast<double>(a)); }},
    {PointOp::IsNan, [](T a, T) { return std::isnan(static_cast<double>(a)); }},
    {PointOp::IsNegInf, [](T a, T) { return static_cast<double>(a) == -kInfinity; }},
    {PointOp::IsPosInf, [](T a, T) { return static_cast<double>(a) == kInfinity; }},
};

template <class T>
Scalar truth(PointOp op, T a, T b) {
  return integerScalar(functionOf(kTruth<T>, op, "gives no Bool")(a, b) ? 1 : 0);
}

// Operands are in the type's range, so only the minimum of Int divided by -1 could trap; it wraps.
int64_t quotient(int64_t a, int64_t b) {
  return b == 0 ? 0 : b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
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
  auto magnitude = [](int64_t n) { return n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n); };
  return std::gcd(magnitude(a), magnitude(b));
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
      return static_cast<uint64_t>(a >> (b < 0 || b > 63 ? 63 : b));
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
      return truth(op, a, binary ? x[1].real : 0.0);
    }
    if (op == PointOp::Fma) {
      return realScalar(dtype == DataType::Float ? std::fmaf(static_cast<float>(a), static_cast<float>(x[1].real),
                                                             static_cast<float>(x[2].real))
                                                 : std::fma(a, x[1].real, x[2].real));
    }
    double result = binary ? binaryReal(op, dtype, a, x[1].real)
                           : functionOf(kUnaryReal, op, "is not a unary operation on floating values")(a);
    return realScalar(roundTo(result, dtype));
  }
  int64_t a = x[0].integer;
  int64_t b = binary ? x[1].integer : 0;
  return info(op).givesBool ? truth(op, a, b) : integerScalar(wrap(integerPoint(op, dtype, a, b), dtype));
}

Scalar castScalar(Scalar value, DataType from, DataType to) {
  if (isFloatingPoint(to)) {
    return realScalar(roundTo(isFloatingPoint(from)    ? value.real
                              : to == DataType::Double ? static_cast<double>(value.integer)
                                                       : static_cast<float>(value.integer),
                              to));
  }
  if (!isFloatingPoint(from)) {
    return integerScalar(wrap(static_cast<uint64_t>(value.integer), to));
  }
  if (to == DataType::Bool) {
    return integerScalar(value.real != 0 ? 1 : 0);
  }
  const DataType first = truncationType(to);
  const double bound = std::ldexp(1.0, bitWidth(first) - 1);
  const double whole = std::trunc(value.real);
  const bool fits = whole >= -bound && whole < bound;  // not NaN
  return integerScalar(wrapInteger(to, fits ? static_cast<int64_t>(whole) : lowestInteger(first)));
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

Scalar readElement(const void* at, DataType dtype) {
  return isFloatingPoint(dtype) ? realScalar(loadElement(at, dtype)) : integerScalar(loadInteger(at, dtype));
}

void writeElement(void* at, DataType dtype, Scalar value) {
  isFloatingPoint(dtype) ? storeElement(at, dtype, value.real) : storeInteger(at, dtype, value.integer);
}

// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counterHigh, uint64_t counterLow) {
  auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  std::array<uint32_t, 4> c = {low(counterLow), high(counterLow), low(counterHigh), high(counterHigh)};
  uint32_t k0 = low(key);
  uint32_t k1 = high(key);
  for (int64_t round = 0; round < 10; round++) {
    uint64_t p0 = uint64_t{0xD2511F53u} * c[0];
    uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {high(p1) ^ c[1] ^ k0, low(p1), high(p0) ^ c[3] ^ k1, low(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace meshfuse::tile
