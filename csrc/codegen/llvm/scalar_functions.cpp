#include "codegen/llvm/scalar_functions.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <type_traits>

#include "base/refused_index.h"
#include "codegen/llvm/emit.h"

namespace meshfuse {

namespace {

template <class T, auto F>
void unary(T* out, const T* a, const T*, int64_t n) {
  std::transform(a, a + n, out, F);
}

template <class T, auto F>
void binary(T* out, const T* a, const T* b, int64_t n) {
  std::transform(a, a + n, b, out, F);
}

// -- floating ---------------------------------------------------------------------------------------------------------

// A rational start (the tails by their logarithm), then two steps of Halley's method on erf, or on erfc near 1 where erf
// has no digits left.
double erfinv(double y) {
  double a = std::abs(y);
  if (!(a < 1)) {
    return a == 1 ? std::copysign(std::numeric_limits<double>::infinity(), y)
                  : std::numeric_limits<double>::quiet_NaN();
  }
  if (a < 1e-150) {
    return y * 0.88622692545275801365;  // sqrt(pi) / 2
  }
  // Winitzki, "A handy approximation for the error function and its inverse", 2008
  double l = std::log1p(-a * a);
  double t = 2 / (M_PI * 0.147) + l / 2;
  double x = std::sqrt(std::sqrt(t * t - l / 0.147) - t);
  for (int64_t step = 0; step < 3; step++) {
    double error = a > 0.5 ? (1 - a) - std::erfc(x) : std::erf(x) - a;
    double newton = error / (M_2_SQRTPI * std::exp(-x * x));
    x -= newton / (1 + x * newton);
  }
  return std::copysign(x, y);
}

template <class T>
T remainderOf(T a, T b) {
  T r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double lgammaOf(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

// Float functions whose result is a double one rounded: glibc's own float versions are off by several ULP or absent.
template <double (*F)(double)>
float viaDouble(float x) {
  return static_cast<float>(F(static_cast<double>(x)));
}

// -- integers: arithmetic wraps ---------------------------------------------------------------------------------------

template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
bool overflows(T a, T b) {
  return a == std::numeric_limits<T>::min() && b == -1;
}

template <class T>
T quotient(T a, T b) {
  return b == 0 ? T{0} : overflows(a, b) ? a : static_cast<T>(a / b);
}

template <class T>
T modulo(T a, T b) {
  return b == 0 || overflows(a, b) ? T{0} : static_cast<T>(a % b);
}

template <class T>
T remainderOfIntegers(T a, T b) {
  T r = modulo(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <class T>
T ceilQuotient(T a, T b) {
  T q = quotient(a, b);
  T r = modulo(a, b);
  return r != 0 && (r < 0) == (b < 0) ? q + 1 : q;
}

template <class T>
T gcd(T a, T b) {
  auto magnitude = [](T x) {
    return x < 0 ? Unsigned<T>{0} - static_cast<Unsigned<T>>(x) : static_cast<Unsigned<T>>(x);
  };
  return static_cast<T>(std::gcd(magnitude(a), magnitude(b)));
}

template <class T>
T power(T base, T exponent) {
  if (exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  Unsigned<T> result = 1;
  auto factor = static_cast<Unsigned<T>>(base);
  for (auto e = static_cast<Unsigned<T>>(exponent); e != 0; e >>= 1) {
    result *= (e & 1) != 0 ? factor : 1;
    factor *= factor;
  }
  return static_cast<T>(result);
}

template <class T>
void refuse(const T* index, const T* extent, uint64_t bad) {
  int64_t lane = std::countr_zero(bad);
  refuseIndex(index[lane], extent[lane]);
}

using Table = std::vector<std::pair<std::string, void*>>;

// Types narrower than 32 bits are computed in int32_t, which holds the values of all of them.
template <class T>
using Computed = std::conditional_t<sizeof(T) < sizeof(int32_t), int32_t, T>;

template <class T, Computed<T> (*F)(Computed<T>, Computed<T>)>
T cut(T a, T b) {
  return static_cast<T>(F(a, b));
}

template <class T, T (*F)(T)>
void addUnary(Table& table, PointOp op, DataType dtype) {
  table.emplace_back(scalarFunctionSymbol(op, dtype), reinterpret_cast<void*>(&unary<T, F>));
}

template <class T, T (*F)(T, T)>
void addBinary(Table& table, PointOp op, DataType dtype) {
  table.emplace_back(scalarFunctionSymbol(op, dtype), reinterpret_cast<void*>(&binary<T, F>));
}

template <class T>
void addIntegers(Table& t, DataType d) {
  using C = Computed<T>;
  addBinary<T, cut<T, quotient<C>>>(t, PointOp::Div, d);
  addBinary<T, cut<T, modulo<C>>>(t, PointOp::Mod, d);
  addBinary<T, cut<T, modulo<C>>>(t, PointOp::Fmod, d);
  addBinary<T, cut<T, remainderOfIntegers<C>>>(t, PointOp::Remainder, d);
  addBinary<T, cut<T, ceilQuotient<C>>>(t, PointOp::CeilDiv, d);
  addBinary<T, cut<T, gcd<C>>>(t, PointOp::Gcd, d);
  addBinary<T, cut<T, power<C>>>(t, PointOp::Pow, d);
  t.emplace_back(scalarFunctionSymbol(PointOp::CheckedIndex, d), reinterpret_cast<void*>(&refuse<T>));
}

// The function of an op on doubles, and on floats.
template <double (*D)(double), float (*F)(float)>
void addUnary(Table& t, PointOp op) {
  addUnary<double, D>(t, op, DataType::Double);
  addUnary<float, F>(t, op, DataType::Float);
}

template <double (*D)(double, double), float (*F)(float, float)>
void addBinary(Table& t, PointOp op) {
  addBinary<double, D>(t, op, DataType::Double);
  addBinary<float, F>(t, op, DataType::Float);
}

void addFloating(Table& t) {
  addUnary<std::acos, std::acos>(t, PointOp::Acos);
  addUnary<std::acosh, viaDouble<std::acosh>>(t, PointOp::Acosh);
  addUnary<std::asin, std::asin>(t, PointOp::Asin);
  addUnary<std::asinh, viaDouble<std::asinh>>(t, PointOp::Asinh);
  addUnary<std::atan, std::atan>(t, PointOp::Atan);
  addUnary<std::atanh, viaDouble<std::atanh>>(t, PointOp::Atanh);
  addUnary<std::cos, std::cos>(t, PointOp::Cos);
  addUnary<std::cosh, viaDouble<std::cosh>>(t, PointOp::Cosh);
  addUnary<std::expm1, viaDouble<std::expm1>>(t, PointOp::Expm1);
  addUnary<std::erfc, viaDouble<std::erfc>>(t, PointOp::Erfc);
  addUnary<erfinv, viaDouble<erfinv>>(t, PointOp::Erfinv);
  addUnary<lgammaOf, viaDouble<lgammaOf>>(t, PointOp::Lgamma);
  addUnary<std::log10, viaDouble<std::log10>>(t, PointOp::Log10);
  addUnary<std::log1p, viaDouble<std::log1p>>(t, PointOp::Log1p);
  addUnary<std::log2, std::log2>(t, PointOp::Log2);
  addUnary<std::sin, std::sin>(t, PointOp::Sin);
  addUnary<std::sinh, viaDouble<std::sinh>>(t, PointOp::Sinh);
  addUnary<std::tan, viaDouble<std::tan>>(t, PointOp::Tan);
  addBinary<std::fmod, std::fmod>(t, PointOp::Fmod);
  addBinary<remainderOf<double>, remainderOf<float>>(t, PointOp::Remainder);
  addBinary<std::pow, std::pow>(t, PointOp::Pow);
  addBinary<std::atan2, std::atan2>(t, PointOp::Atan2);
  addBinary<std::nextafter, std::nextafter>(t, PointOp::NextAfter);
  // Emitted inline for floats.
  addUnary<double, std::exp>(t, PointOp::Exp, DataType::Double);
  addUnary<double, std::exp2>(t, PointOp::Exp2, DataType::Double);
  addUnary<double, std::erf>(t, PointOp::Erf, DataType::Double);
  addUnary<double, std::log>(t, PointOp::Log, DataType::Double);
  addUnary<double, std::tanh>(t, PointOp::Tanh, DataType::Double);
}

}  // namespace

std::string scalarFunctionSymbol(PointOp op, DataType dtype) {
  return fmt::format("meshfuse_{}_{}", info(op).name, info(dtype).token);
}

std::vector<std::pair<std::string, void*>> cpuRuntimeSymbols() {
  Table table;
  addFloating(table);
  for (const DataTypeInfo& row : kDataTypes) {
    withElementType(row.type, [&]<class T>() {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        addIntegers<T>(table, row.type);
      }
    });
  }
  return table;
}

}  // namespace meshfuse
