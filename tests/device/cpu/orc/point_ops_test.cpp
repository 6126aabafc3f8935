// Every elementwise op and cast, in every type it takes and for every vector width, against <cmath> in long double and against
// integer arithmetic in 128 bits.
#include <gtest/gtest.h>
#include <pmmintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "device/cpu/orc/columns.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "device/cpu/orc/run_program.h"
#include "point_values.h"
#include "tensor/half.h"
#include "tile/builder.h"

namespace meshfuse {
namespace {

using tile::Builder;
using tile::ValueId;

constexpr Real kInf = std::numeric_limits<Real>::infinity();
constexpr Real kNan = std::numeric_limits<Real>::quiet_NaN();

// Special values, then magnitudes of all orders, then the range where functions bend.
void fill(Column& c, DataType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> unit(-1, 1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double specials[] = {0,         -0.0,       1,      -1,     0.5,     -0.5, 1.5,         2.5,          -2.5,
                             kInfinity, -kInfinity, NAN,    1e-3,   -1e-3,   88.7, -87.4,       -103.9,       89.1,
                             1e-40,     -1e-40,     1e-45,  3.4e38, -3.4e38, 1e30, 127,         -126,         -149.5,
                             128.5,     0.65,       0.9499, 20.5,   -20.5,   4.1,  2147483648., -2147483648., 9.3e18};
  for (size_t i = 0; i < c.size(); i++) {
    double x = i < std::size(specials) ? specials[i]
               : i % 3 == 0            ? std::ldexp(unit(random), static_cast<int64_t>(random() % 276) - 140)
               : i % 3 == 1            ? unit(random) * 10
                                       : unit(random) * 110;
    int64_t limit = isIntegral(dtype) ? INT64_MAX >> (64 - bitWidth(dtype)) : INT32_MAX;
    const int64_t width = std::min<int64_t>(bitWidth(dtype), 32);
    const int64_t integers[] = {0,  1,         -1,    limit,     -limit - 1, -limit, 2,  -2,
                                -3, width - 1, width, width + 1, 63,         64,     65, 7};
    auto n = static_cast<int64_t>(random());
    int64_t k = i < 256 ? integers[seed % 2 == 0 ? i / 16 : i % 16] : i % 2 == 0 ? n % 100 : n;
    switch (dtype) {
      case DataType::Double:
        c.put<double>(i, x);
        break;
      case DataType::Float:
        c.put<float>(i, static_cast<float>(x));
        break;
      case DataType::Half:
        c.put<uint16_t>(i, i < std::size(specials) ? floatToHalf(static_cast<float>(x)) : static_cast<uint16_t>(n));
        break;
      case DataType::BFloat16:
        c.put<uint16_t>(i, i < std::size(specials) ? floatToBFloat16(static_cast<float>(x)) : static_cast<uint16_t>(n));
        break;
      case DataType::Int:
        c.put<int64_t>(i, k);
        break;
      case DataType::Int32:
        c.put<int32_t>(i, static_cast<int32_t>(k));
        break;
      case DataType::Short:
        c.put<int16_t>(i, static_cast<int16_t>(k));
        break;
      case DataType::Char:
        c.put<int8_t>(i, static_cast<int8_t>(k));
        break;
      case DataType::UInt16:
        c.put<uint16_t>(i, static_cast<uint16_t>(k));
        break;
      case DataType::Byte:
        c.put<uint8_t>(i, static_cast<uint8_t>(k));
        break;
      case DataType::Bool:
        c.put<uint8_t>(i, static_cast<uint8_t>(n & 1));
        break;
    }
  }
}

// -- references -------------------------------------------------------------------------------------------------------

Real erfinvOf(Real y) {
  if (!(std::abs(y) < 1)) {
    return std::abs(y) == 1 ? std::copysign(kInf, y) : kNan;
  }
  if (std::abs(y) < 1e-12L) {
    return y * 0.886226925452758013649L;  // sqrt(pi) / 2: the cubic term is below the last place
  }
  Real low = 0;
  Real high = 30;
  Real a = std::abs(y);
  for (int64_t i = 0; i < 200; i++) {
    Real middle = (low + high) / 2;
    bool below = a > 0.5L ? std::erfc(middle) > 1 - a : std::erf(middle) < a;
    (below ? low : high) = middle;
  }
  return std::copysign((low + high) / 2, y);
}

Real remainderOf(Real a, Real b) {
  Real r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

template <class T>
Real nextAfter(Real a, Real b) {
  return std::nextafter(static_cast<T>(a), static_cast<T>(b));
}

// What an op should give in exact arithmetic, rounded where it must be; Bool as 0 or 1.
Real expectedReal(PointOp op, bool isFloat, Real a, Real b, Real c) {
  using enum PointOp;
  bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case Abs:
      return std::abs(a);
    case Acos:
      return std::acos(a);
    case Acosh:
      return std::acosh(a);
    case Asin:
      return std::asin(a);
    case Asinh:
      return std::asinh(a);
    case Atan:
      return std::atan(a);
    case Atanh:
      return std::atanh(a);
    case Ceil:
      return std::ceil(a);
    case Cos:
      return std::cos(a);
    case Cosh:
      return std::cosh(a);
    case Exp:
      return std::exp(a);
    case Exp2:
      return std::exp2(a);
    case Expm1:
      return std::expm1(a);
    case Erf:
      return std::erf(a);
    case Erfc:
      return std::erfc(a);
    case Erfinv:
      return erfinvOf(a);
    case Floor:
      return std::floor(a);
    case Frac:
      return a - std::trunc(a);
    case Lgamma:
      return std::lgamma(a);
    case Log:
      return std::log(a);
    case Log10:
      return std::log10(a);
    case Log1p:
      return std::log1p(a);
    case Log2:
      return std::log2(a);
    case Neg:
      return -a;
    case Reciprocal:
      return 1 / a;
    case Round:
      return std::nearbyint(a);
    case Rsqrt:
      return 1 / std::sqrt(a);
    case Sigmoid:
      return a < 0 ? std::exp(a) / (1 + std::exp(a)) : 1 / (1 + std::exp(-a));
    case Sign:
      return std::isnan(a) ? a : (a > 0) - (a < 0);
    case Signbit:
      return std::signbit(a);
    case Sin:
      return std::sin(a);
    case Sinh:
      return std::sinh(a);
    case Sqrt:
      return std::sqrt(a);
    case Tan:
      return std::tan(a);
    case Tanh:
      return std::tanh(a);
    case Trunc:
      return std::trunc(a);
    case LogicalNot:
      return a == 0;
    case IsFinite:
      return std::isfinite(a);
    case IsInf:
      return std::isinf(a);
    case IsNan:
      return std::isnan(a);
    case IsNegInf:
      return a == -kInf;
    case IsPosInf:
      return a == kInf;
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
      return remainderOf(a, b);
    case Pow:
      return std::pow(a, b);
    case Atan2:
      return std::atan2(a, b);
    case Maximum:
      return nan ? kNan : std::max(a, b);
    case Minimum:
      return nan ? kNan : std::min(a, b);
    case NextAfter:
      return isFloat ? nextAfter<float>(a, b) : nextAfter<double>(a, b);
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
    case LogicalAnd:
      return a != 0 && b != 0;
    case LogicalOr:
      return a != 0 || b != 0;
    case LogicalXor:
      return (a != 0) != (b != 0);
    case Fma:
      return isFloat ? std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c))
                     : std::fma(a, b, c);
    default:
      ADD_FAILURE() << "no reference for " << info(op).name;
      return 0;
  }
}

Wide wrapped(Wide x, int64_t bits) {
  if (bits == 1) {
    return x != 0;
  }
  const auto low = static_cast<uint64_t>(static_cast<unsigned __int128>(x));
  return Wide{static_cast<int64_t>(low << (64 - bits)) >> (64 - bits)};
}

Wide floorDivide(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

Wide power(Wide base, Wide exponent, int64_t bits) {
  if (exponent < 0) {
    return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  }
  Wide result = 1;
  for (; exponent > 0; exponent /= 2) {
    result = exponent % 2 != 0 ? wrapped(result * base, bits) : result;
    base = wrapped(base * base, bits);
  }
  return result;
}

Wide expectedInteger(PointOp op, int64_t bits, Wide a, Wide b) {
  using enum PointOp;
  switch (op) {
    case Abs:
      return a < 0 ? -a : a;
    case Neg:
      return -a;
    case Sign:
      return (a > 0) - (a < 0);
    case Signbit:
      return a < 0;
    case BitwiseNot:
      return bits == 1 ? Wide{a == 0} : ~a;
    case LogicalNot:
      return a == 0;
    case Add:
      return a + b;
    case Sub:
      return a - b;
    case Mul:
      return a * b;
    case Div:
      return b == 0 ? 0 : a / b;
    case Fmod:
    case Mod:
      return b == 0 ? 0 : a % b;
    case Remainder:
      return b == 0 ? 0 : a - floorDivide(a, b) * b;
    case CeilDiv:
      return b == 0 ? 0 : -floorDivide(-a, b);
    case Pow:
      return power(a, b, bits);
    case Gcd: {
      Wide x = a < 0 ? -a : a;
      Wide y = b < 0 ? -b : b;
      while (y != 0) {
        std::swap(x, y);
        y %= x;
      }
      return x;
    }
    case Maximum:
      return std::max(a, b);
    case Minimum:
      return std::min(a, b);
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
    case BitwiseAnd:
      return a & b;
    case BitwiseOr:
      return a | b;
    case BitwiseXor:
      return a ^ b;
    case Shl:
      return b < 0 || b >= bits ? 0 : a << b;
    case Shr:
      return b < 0 || b >= bits ? (a < 0 ? -1 : 0) : a >> b;
    case LogicalAnd:
      return a != 0 && b != 0;
    case LogicalOr:
      return a != 0 || b != 0;
    case LogicalXor:
      return (a != 0) != (b != 0);
    default:
      ADD_FAILURE() << "no reference for " << info(op).name;
      return 0;
  }
}

// Units in the last place of the exact result's float or double, subnormal spacing below the normal numbers.
Real ulps(Real got, Real exact, bool isFloat) {
  if (std::isnan(got) || std::isnan(exact)) {
    return std::isnan(got) == std::isnan(exact) ? 0 : kInf;
  }
  Real largest = isFloat ? Real{std::numeric_limits<float>::max()} : Real{std::numeric_limits<double>::max()};
  int64_t digits = isFloat ? 24 : 53;
  int64_t lowest = isFloat ? -125 : -1021;
  if (std::isinf(got) || std::isinf(exact)) {
    Real bound = largest * (1 + std::ldexp(Real{1}, -digits - 1));
    bool overflow = std::abs(exact) > bound && std::isinf(got) && std::signbit(got) == std::signbit(exact);
    return got == exact || overflow ? 0 : std::abs(exact) > largest && std::abs(got) == largest ? 1 : kInf;
  }
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(got - exact) / std::ldexp(Real{1}, std::max<int64_t>(exponent, lowest) - digits);
}

// Inline float math is bounded as vector_math.h states; plain arithmetic and rounding are exact to half an ULP; the rest is
// glibc's, within 1 ULP in double but for the functions it documents as worse.
Real bound(PointOp op, bool isFloat) {
  using enum PointOp;
  switch (op) {
    case Exp:
    case Exp2:
    case Log:
    case Rsqrt:
      return isFloat ? 1.6L : 1.5L;
    case Erf:
      return isFloat ? 2.2L : 1.5L;
    case Tanh:
      return isFloat ? 2.6L : 2.5L;
    case Sigmoid:
      return isFloat ? 3.6L : 2.5L;
    case Lgamma:
      return isFloat ? 1.0L : 16;
    case Erfinv:
      return isFloat ? 0.6L : 40;
    case Acosh:
    case Asinh:
    case Atanh:
    case Cosh:
    case Expm1:
    case Erfc:
    case Log10:
    case Log1p:
    case Sinh:
    case Tan:
      return isFloat ? 0.6L : 4;
    case Acos:
    case Asin:
    case Atan:
    case Cos:
    case Sin:
    case Log2:
    case Pow:
    case Atan2:
      return 1.5L;
    default:
      return 0.5L;
  }
}

bool takes(OpTypes types, DataType d) {
  bool floating = d == DataType::Double || d == DataType::Float;
  switch (types) {
    case OpTypes::Any:
      return true;
    case OpTypes::Number:
      return d != DataType::Bool;
    case OpTypes::Floating:
      return floating;
    case OpTypes::Integer:
      return isIntegral(d);
    case OpTypes::Bits:
      return !floating;
  }
  return false;
}

constexpr size_t kElements = 4003;

void checkOp(PointOp op, DataType dtype, const CpuKernel& kernel) {
  SCOPED_TRACE(std::string(info(op).name) + " " + std::string(name(dtype)));
  std::vector<Column> columns;
  for (int64_t i = 0; i < info(op).arity; i++) {
    DataType d = op == PointOp::Where && i == 0 ? DataType::Bool : dtype;
    columns.emplace_back(d, kElements);
    fill(columns.back(), d, static_cast<uint64_t>(i + 1));
  }
  Column y(info(op).givesBool ? DataType::Bool : dtype, kElements);
  run(kernel, columns, y);
  bool isFloat = dtype == DataType::Float;
  Real worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < kElements; i++) {
    if (op == PointOp::Where) {
      Column& chosen = columns[columns[0].integer(i) != 0 ? 1 : 2];
      bool same =
          isFloatingPoint(dtype) ? ulps(y.real(i), chosen.real(i), isFloat) == 0 : y.integer(i) == chosen.integer(i);
      ASSERT_TRUE(same) << i;
    } else if (isFloatingPoint(dtype)) {
      Real a = columns[0].real(i);
      Real b = columns.size() > 1 ? columns[1].real(i) : 0;
      Real c = columns.size() > 2 ? columns[2].real(i) : 0;
      Real exact = expectedReal(op, isFloat, a, b, c);
      if (info(op).givesBool) {
        ASSERT_EQ(static_cast<int64_t>(y.integer(i)), static_cast<int64_t>(exact)) << "at " << a << ", " << b;
        continue;
      }
      Real error = ulps(y.real(i), exact, isFloat);
      if (error > worst) {
        worst = error;
        where = i;
      }
    } else {
      int64_t bits = dtype == DataType::Bool ? 1 : bitWidth(dtype);
      Wide a = columns[0].integer(i);
      Wide b = columns.size() > 1 ? columns[1].integer(i) : 0;
      Wide expected = wrapped(expectedInteger(op, bits, a, b), info(op).givesBool ? 1 : bits);
      if (!info(op).givesBool && (dtype == DataType::Byte || dtype == DataType::UInt16)) {
        expected &= (Wide{1} << bits) - 1;
      }
      ASSERT_EQ(static_cast<int64_t>(y.integer(i)), static_cast<int64_t>(expected))
          << "at " << static_cast<int64_t>(a) << ", " << static_cast<int64_t>(b);
    }
  }
  EXPECT_LE(worst, bound(op, isFloat)) << "at " << columns[0].real(where) << ", "
                                       << (columns.size() > 1 ? columns[1].real(where) : 0) << " got " << y.real(where);
}

TEST(PointOps, AllTypesAndWidths) {
  for (const CpuTarget& target : testedTargets()) {
    SCOPED_TRACE("vector bytes " + std::to_string(target.vectorBytes));
    std::vector<tile::Program> programs;
    std::vector<std::pair<PointOp, DataType>> cases;
    for (const PointOpInfo& row : kPointOps) {
      for (const DataTypeInfo& type : kDataTypes) {
        const DataType d = type.type;
        if (isHalfPrecision(d) || !takes(row.types, d) || mayRefuse(row.op)) {
          continue;
        }
        std::vector<DataType> inputs(row.arity, d);
        if (row.op == PointOp::Where) {
          inputs[0] = DataType::Bool;
        }
        programs.push_back(elementwise(std::string(row.name), inputs, row.givesBool ? DataType::Bool : d,
                                       [&](Builder& b, const std::vector<ValueId>& x) { return b.point(row.op, x); }));
        cases.emplace_back(row.op, d);
      }
    }
    CpuCompiler compiler({.target = target});
    std::vector<std::shared_ptr<const CpuKernel>> kernels = compiler.compile(programs);
    for (size_t i = 0; i < cases.size(); i++) {
      checkOp(cases[i].first, cases[i].second, *kernels[i]);
    }
  }
}

// Numbers up to 131072, for which sin and cos are in line on processors with fused multiply-adds.
std::vector<float> anglesOfOrdinarySize() {
  constexpr float kMost = 131072;
  std::vector<float> x{kMost, std::nextafter(kMost, 0.0F), 0, 1e-45F, 1e-30F, 1e-4F};
  for (int64_t n = 1; n <= 83443; n += n < 2000 ? 1 : 97) {  // where the reduced angle is close to 0
    const auto angle = static_cast<float>(static_cast<Real>(n) * 1.57079632679489661923L);
    x.insert(x.end(), {std::nextafter(angle, 0.0F), angle, std::nextafter(angle, kMost)});
  }
  std::mt19937_64 random(11);
  std::uniform_real_distribution<float> unit(-1, 1);
  for (int64_t i = 0; i < 20'000; i++) {
    x.push_back(unit(random) * std::ldexp(1.0F, static_cast<int>(random() % 40) - 22));
  }
  for (size_t i = 0; i < x.size(); i += 2) {
    x[i] = -x[i];
  }
  return x;
}

TEST(PointOps, SinesOfOrdinarySizeDoNotDependOnLargeNeighbours) {
  const std::vector<float> angles = anglesOfOrdinarySize();
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const float large[] = {std::nextafter(131072.0F, kInfinite), -1e6F, 3e38F, kInfinite, std::nanf("")};
  std::vector<Column> alone;
  std::vector<Column> mixed;
  alone.emplace_back(DataType::Float, angles.size());
  mixed.emplace_back(DataType::Float, angles.size());
  for (size_t i = 0; i < angles.size(); i++) {
    alone[0].put<float>(i, angles[i]);
    mixed[0].put<float>(i, i % 7 == 3 ? large[i % std::size(large)] : angles[i]);
  }
  for (const CpuTarget& target : testedTargets()) {
    for (const PointOp op : {PointOp::Sin, PointOp::Cos}) {
      SCOPED_TRACE(std::string(info(op).name) + ", vector bytes " + std::to_string(target.vectorBytes));
      CpuCompiler compiler({.target = target});
      const auto kernel = compiler.compile(
          std::vector{elementwise("sine", {DataType::Float}, DataType::Float,
                                  [op](Builder& b, const std::vector<ValueId>& x) { return b.point(op, x); })})[0];
      Column y(DataType::Float, angles.size());
      Column besideLarge(DataType::Float, angles.size());
      run(*kernel, alone, y);
      run(*kernel, mixed, besideLarge);
      Real worst = 0;
      size_t where = 0;
      for (size_t i = 0; i < angles.size(); i++) {
        const Real error = ulps(y.real(i), expectedReal(op, true, alone[0].real(i), 0, 0), true);
        where = error > worst ? i : where;
        worst = std::max(worst, error);
        if (i % 7 == 3) {
          EXPECT_LE(ulps(besideLarge.real(i), expectedReal(op, true, mixed[0].real(i), 0, 0), true), bound(op, true))
              << mixed[0].real(i);
        } else {
          ASSERT_EQ(besideLarge.at<uint32_t>(i), y.at<uint32_t>(i)) << alone[0].real(i);
        }
      }
      EXPECT_LE(worst, bound(op, true)) << "at " << alone[0].real(where);
    }
  }
}

TEST(PointOps, GiveTheValuesThatAreWrittenDown) {
  for (const CpuTarget& target : testedTargets()) {
    std::vector<tile::Program> programs;
    std::vector<std::vector<PointValue>> values;
    std::vector<DataType> types;
    for (const DataTypeInfo& type : kDataTypes) {
      std::map<PointOp, std::vector<PointValue>> byOp;
      for (const PointValue& row : isHalfPrecision(type.type) ? std::vector<PointValue>{} : pointValues(type.type)) {
        byOp[row.op].push_back(row);
      }
      for (const auto& [op, rows] : byOp) {
        std::vector<DataType> inputs(info(op).arity, type.type);
        inputs[0] = op == PointOp::Where ? DataType::Bool : type.type;
        programs.push_back(
            elementwise(std::string(info(op).name), inputs, info(op).givesBool ? DataType::Bool : type.type,
                        [op = op](Builder& b, const std::vector<ValueId>& x) { return b.point(op, x); }));
        values.push_back(rows);
        types.push_back(type.type);
      }
    }
    CpuCompiler compiler({.target = target});
    const std::vector<std::shared_ptr<const CpuKernel>> kernels = compiler.compile(programs);
    for (size_t k = 0; k < values.size(); k++) {
      const PointOpInfo& op = info(values[k][0].op);
      constexpr size_t kRepeated = 163;  // whole vectors, and a part of one
      std::vector<Column> columns;
      for (int64_t c = 0; c < op.arity; c++) {
        columns.emplace_back(op.op == PointOp::Where && c == 0 ? DataType::Bool : types[k], kRepeated);
        for (size_t i = 0; i < kRepeated; i++) {
          const PointValue& row = values[k][i % values[k].size()];
          columns.back().set(i, row.real[c], row.whole[c]);
        }
      }
      Column y(op.givesBool ? DataType::Bool : types[k], kRepeated);
      run(*kernels[k], columns, y);
      for (size_t i = 0; i < kRepeated; i++) {
        const PointValue& row = values[k][i % values[k].size()];
        SCOPED_TRACE(std::string(name(types[k])) + " " + row.text + ", vector bytes " +
                     std::to_string(target.vectorBytes) + ", element " + std::to_string(i));
        if (isFloatingPoint(types[k]) && !op.givesBool) {
          const auto got = static_cast<double>(y.real(i));
          EXPECT_TRUE(agrees(row, types[k], got, static_cast<double>(bound(op.op, types[k] == DataType::Float))))
              << got;
        } else {
          EXPECT_EQ(static_cast<int64_t>(y.integer(i)), row.wholeResult);
        }
      }
    }
  }
}

// -- casts ------------------------------------------------------------------------------------------------------------

// To nearest even in the type, from an exact value.
Real rounded(Real x, DataType to) {
  if (std::isnan(x) || std::isinf(x) || x == 0) {
    return x;
  }
  int64_t digits = info(to).mantissaBits;
  int64_t lowest = to == DataType::Half ? -13 : to == DataType::Double ? -1021 : -125;
  int64_t highest = to == DataType::Half ? 16 : to == DataType::Double ? 1024 : 128;
  int exponent = 0;
  std::frexp(x, &exponent);
  Real unit = std::ldexp(Real{1}, std::max<int64_t>(exponent, lowest) - digits);
  Real result = std::nearbyint(x / unit) * unit;
  return std::abs(result) >= std::ldexp(Real{1}, highest) ? std::copysign(kInf, x) : result;
}

TEST(Casts, OneRoundingAndTruncation) {
  for (const CpuTarget& target : testedTargets()) {
    std::vector<tile::Program> programs;
    std::vector<std::pair<DataType, DataType>> cases;
    for (const DataTypeInfo& from : kDataTypes) {
      for (const DataTypeInfo& to : kDataTypes) {
        auto make = [&](Builder& b, const std::vector<ValueId>& x) { return b.cast(x[0], to.type); };
        programs.push_back(elementwise("cast", {from.type}, to.type, make));
        cases.emplace_back(from.type, to.type);
      }
    }
    CpuCompiler compiler({.target = target});
    std::vector<std::shared_ptr<const CpuKernel>> kernels = compiler.compile(programs);
    for (size_t k = 0; k < cases.size(); k++) {
      auto [from, to] = cases[k];
      SCOPED_TRACE(std::string(name(from)) + " to " + std::string(name(to)) + ", vector bytes " +
                   std::to_string(target.vectorBytes));
      std::vector<Column> x;
      x.emplace_back(from, from == DataType::Half || from == DataType::BFloat16 ? size_t{65536} : kElements);
      fill(x[0], from, 5);
      Column y(to, x[0].size());
      run(*kernels[k], x, y);
      for (size_t i = 0; i < x[0].size(); i++) {
        Real value = x[0].real(i);
        if (isFloatingPoint(to)) {
          Real expected = rounded(value, to);
          ASSERT_TRUE(y.real(i) == expected || (std::isnan(expected) && std::isnan(y.real(i))))
              << value << " gave " << y.real(i) << ", expected " << expected;
          continue;
        }
        Wide expected = to == DataType::Bool ? Wide{value != 0}
                                             : wrapped(isFloatingPoint(from) ? 0 : x[0].integer(i), bitWidth(to));
        const bool keepsLowBits = to == DataType::Byte || to == DataType::UInt16;  // of a number of 64 bits
        if (to != DataType::Bool && isFloatingPoint(from)) {
          Real limit = std::ldexp(Real{1}, keepsLowBits ? 63 : bitWidth(to) - 1);
          bool fits = std::trunc(value) >= -limit && std::trunc(value) < limit;
          expected = fits ? static_cast<Wide>(std::trunc(value)) : -static_cast<Wide>(limit);
        }
        if (keepsLowBits) {
          expected &= (Wide{1} << bitWidth(to)) - 1;
        }
        ASSERT_EQ(static_cast<int64_t>(y.integer(i)), static_cast<int64_t>(expected)) << value;
      }
    }
  }
}

// All signs, exponents and fractions that stay, with the digits after them below, at and above the half. Also where a caller has set the
// machine to take subnormal numbers for zero.
TEST(Casts, EveryBFloat16IsRoundedToFromFloats) {
  const uint32_t rests[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  std::vector<Column> x;
  x.emplace_back(DataType::Float, 65536 * std::size(rests));
  for (size_t i = 0; i < x[0].size(); i++) {
    x[0].put<uint32_t>(i, static_cast<uint32_t>(i / std::size(rests)) << 16 | rests[i % std::size(rests)]);
  }
  const auto make = [](Builder& b, const std::vector<ValueId>& in) { return b.cast(in[0], DataType::BFloat16); };
  const tile::Program program = elementwise("cast", {DataType::Float}, DataType::BFloat16, make);
  for (const CpuTarget& target : testedTargets()) {
    CpuCompiler compiler({.target = target});
    const std::shared_ptr<const CpuKernel> kernel = compiler.compile({&program, 1})[0];
    for (const unsigned zeroes : {_MM_DENORMALS_ZERO_OFF, _MM_DENORMALS_ZERO_ON}) {
      Column y(DataType::BFloat16, x[0].size());
      _MM_SET_DENORMALS_ZERO_MODE(zeroes);
      run(*kernel, x, y);
      _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_OFF);
      for (size_t i = 0; i < x[0].size(); i++) {
        ASSERT_EQ(y.at<uint16_t>(i), floatToBFloat16(x[0].at<float>(i)))
            << x[0].real(i) << ", vector bytes " << target.vectorBytes << ", mode " << zeroes;
      }
    }
  }
}

}  // namespace
}  // namespace meshfuse
