#include "tile/scalar.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "point_values.h"
#include "tensor/tensor.h"

namespace meshfuse::tile {
namespace {

using enum PointOp;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double real(PointOp op, DataType dtype, std::initializer_list<double> x) {
  std::vector<Scalar> operands;
  for (double v : x) {
    operands.push_back(realScalar(v));
  }
  return applyPoint(op, dtype, operands).real;
}
int64_t whole(PointOp op, DataType dtype, std::initializer_list<int64_t> x) {
  std::vector<Scalar> operands;
  for (int64_t v : x) {
    operands.push_back(integerScalar(v));
  }
  return applyPoint(op, dtype, operands).integer;
}
int64_t test(PointOp op, std::initializer_list<double> x) {
  std::vector<Scalar> operands;
  for (double v : x) {
    operands.push_back(realScalar(v));
  }
  return applyPoint(op, DataType::Float, operands).integer;
}

TEST(Scalar, IntegerEdges) {
  constexpr DataType kInt = DataType::Int;
  constexpr DataType kInt32 = DataType::Int32;
  for (PointOp op : {Div, Mod, Fmod, Remainder, CeilDiv}) {
    EXPECT_EQ(whole(op, kInt, {7, 0}), 0);
    EXPECT_EQ(whole(op, kInt32, {-7, 0}), 0);
  }
  for (PointOp op : {Div, CeilDiv}) {
    EXPECT_EQ(whole(op, kInt, {INT64_MIN, -1}), INT64_MIN);
    EXPECT_EQ(whole(op, kInt32, {INT32_MIN, -1}), INT32_MIN);
  }
  EXPECT_EQ(whole(Div, kInt, {-7, 2}), -3);
  EXPECT_EQ(whole(Mod, kInt, {-7, 2}), -1);
  EXPECT_EQ(whole(Fmod, kInt, {-7, 2}), -1);
  EXPECT_EQ(whole(Remainder, kInt, {-7, 2}), 1);
  EXPECT_EQ(whole(Remainder, kInt, {7, -2}), -1);
  EXPECT_EQ(whole(CeilDiv, kInt, {7, 2}), 4);
  EXPECT_EQ(whole(CeilDiv, kInt, {-7, 2}), -3);
  EXPECT_EQ(whole(CeilDiv, kInt, {-7, -2}), 4);
  EXPECT_EQ(whole(Add, kInt32, {INT32_MAX, 1}), INT32_MIN);
  EXPECT_EQ(whole(Mul, kInt, {INT64_MAX, 2}), -2);
  EXPECT_EQ(whole(Neg, kInt32, {INT32_MIN}), INT32_MIN);
  EXPECT_EQ(whole(Abs, kInt, {INT64_MIN}), INT64_MIN);
  EXPECT_EQ(whole(Shl, kInt32, {1, 31}), INT32_MIN);
  EXPECT_EQ(whole(Shl, kInt32, {1, 32}), 0);
  EXPECT_EQ(whole(Shl, kInt, {1, -1}), 0);
  EXPECT_EQ(whole(Shr, kInt, {-5, 64}), -1);
  EXPECT_EQ(whole(Shr, kInt32, {5, 40}), 0);
  EXPECT_EQ(whole(Shr, kInt, {-5, 1}), -3);
  EXPECT_EQ(whole(Shr, kInt, {-5, -1}), -1);
  EXPECT_EQ(whole(Shr, kInt, {5, -1}), 0);
  EXPECT_EQ(whole(Pow, kInt, {3, 5}), 243);
  EXPECT_EQ(whole(Pow, kInt, {2, -1}), 0);
  EXPECT_EQ(whole(Pow, kInt, {-1, -3}), -1);
  EXPECT_EQ(whole(Pow, kInt, {1, -3}), 1);
  EXPECT_EQ(whole(Pow, kInt, {0, 0}), 1);
  EXPECT_EQ(whole(Gcd, kInt, {-12, 18}), 6);
  EXPECT_EQ(whole(Gcd, kInt, {0, 0}), 0);
  EXPECT_EQ(whole(BitwiseNot, DataType::Bool, {1}), 0);
  EXPECT_EQ(whole(BitwiseNot, kInt, {1}), -2);
  EXPECT_EQ(whole(Signbit, kInt, {-1}), 1);
  EXPECT_EQ(whole(Sign, kInt32, {-9}), -1);
  EXPECT_EQ(whole(LogicalXor, kInt, {3, 4}), 0);
}

TEST(Scalar, NarrowIntegersWrapAtTheirWidth) {
  constexpr DataType kChar = DataType::Char;
  constexpr DataType kShort = DataType::Short;
  EXPECT_EQ(whole(Add, kChar, {127, 1}), -128);
  EXPECT_EQ(whole(Sub, kShort, {-32768, 1}), 32767);
  EXPECT_EQ(whole(Mul, kChar, {100, 3}), 44);
  EXPECT_EQ(whole(Mul, kShort, {-32768, -1}), -32768);
  EXPECT_EQ(whole(Neg, kChar, {-128}), -128);
  EXPECT_EQ(whole(Abs, kShort, {-32768}), -32768);
  EXPECT_EQ(whole(Div, kChar, {-128, -1}), -128);
  EXPECT_EQ(whole(Remainder, kChar, {-128, 3}), 1);
  EXPECT_EQ(whole(Pow, kChar, {2, 7}), -128);
  EXPECT_EQ(whole(Pow, kShort, {3, 11}), static_cast<int16_t>(177147));
  EXPECT_EQ(whole(Gcd, kChar, {-128, 0}), -128);
  EXPECT_EQ(whole(BitwiseNot, kChar, {127}), -128);
  EXPECT_EQ(whole(Shl, kChar, {1, 7}), -128);
  EXPECT_EQ(whole(Shl, kChar, {1, 8}), 0);
  EXPECT_EQ(whole(Shl, kShort, {3, 15}), -32768);
  EXPECT_EQ(whole(Shr, kChar, {-128, 9}), -1);
  EXPECT_EQ(castScalar(integerScalar(300), DataType::Int, kChar).integer, 44);
  EXPECT_EQ(castScalar(integerScalar(-129), kShort, kChar).integer, 127);
  EXPECT_EQ(castScalar(realScalar(-127.9), DataType::Float, kChar).integer, -127);
  EXPECT_EQ(Reduction(ReduceOp::Max, kChar).result().integer, -128);
  EXPECT_EQ(Reduction(ReduceOp::Min, kShort).result().integer, 32767);
}

TEST(Scalar, FloatingEdges) {
  constexpr DataType kFloat = DataType::Float;
  EXPECT_TRUE(std::isnan(real(Maximum, kFloat, {kNaN, 1})));
  EXPECT_TRUE(std::isnan(real(Minimum, kFloat, {1, kNaN})));
  EXPECT_TRUE(std::isnan(real(Sign, kFloat, {kNaN})));
  EXPECT_EQ(real(Round, kFloat, {2.5}), 2);
  EXPECT_EQ(real(Round, kFloat, {3.5}), 4);
  EXPECT_EQ(real(Remainder, kFloat, {-7, 2}), 1);
  EXPECT_EQ(real(Fmod, kFloat, {-7, 2}), -1);
  EXPECT_EQ(real(Frac, kFloat, {-1.25}), -0.25);
  EXPECT_EQ(real(Add, kFloat, {1, 0x1p-30}), 1);
  EXPECT_EQ(real(Add, DataType::Double, {1, 0x1p-30}), 1 + 0x1p-30);
  EXPECT_EQ(real(NextAfter, kFloat, {1, 2}), 1 + 0x1p-23);
  EXPECT_EQ(real(Fma, kFloat, {1 + 0x1p-12, 1 + 0x1p-12, -1}), 0x1p-11 + 0x1p-24);
  EXPECT_EQ(real(Exp, kFloat, {100}), kInf);
  EXPECT_EQ(test(IsNegInf, {-kInf}), 1);
  EXPECT_EQ(test(IsPosInf, {-kInf}), 0);
  EXPECT_EQ(test(IsFinite, {kNaN}), 0);
  EXPECT_EQ(test(LogicalNot, {kNaN}), 0);
  EXPECT_EQ(test(Signbit, {-0.0}), 1);
  EXPECT_EQ(test(Ne, {kNaN, kNaN}), 1);
  EXPECT_EQ(test(Eq, {kNaN, kNaN}), 0);
  EXPECT_EQ(real(Erfinv, DataType::Double, {1}), kInf);
  EXPECT_EQ(real(Erfinv, DataType::Double, {-1}), -kInf);
  EXPECT_TRUE(std::isnan(real(Erfinv, DataType::Double, {1.5})));
  for (double x = -4; x <= 4; x += 0.01) {
    double y = std::erf(x);
    EXPECT_NEAR(real(Erfinv, DataType::Double, {y}), x, 1e-15 + 1e-16 * std::exp(x * x));
  }
}

TEST(Scalar, EveryOpTakesItsTypes) {
  for (const PointOpInfo& row : kPointOps) {
    for (const DataTypeInfo& type : kDataTypes) {
      const DataType dtype = type.type;
      if (isHalfPrecision(dtype)) {
        continue;
      }
      bool floating = isFloatingPoint(dtype);
      bool takes = row.types == OpTypes::Any || (row.types == OpTypes::Number && dtype != DataType::Bool) ||
                   (row.types == OpTypes::Floating && floating) ||
                   (row.types == OpTypes::Integer && isIntegral(dtype)) || (row.types == OpTypes::Bits && !floating);
      std::vector<Scalar> x(3, floating ? realScalar(0.5) : integerScalar(1));
      x[0] = row.op == CheckedIndex ? integerScalar(0) : x[0];
      if (row.op == Where) {
        x[0] = integerScalar(1);
      }
      if (takes) {
        EXPECT_NO_THROW((void)applyPoint(row.op, dtype, std::span(x).first(row.arity))) << row.name;
      }
    }
  }
}

TEST(Scalar, GivesTheValuesThatAreWrittenDown) {
  for (const DataTypeInfo& type : kDataTypes) {
    const DataType dtype = type.type;
    if (isHalfPrecision(dtype)) {
      continue;
    }
    std::set<PointOp> ops;
    for (const PointValue& row : pointValues(dtype)) {
      ops.insert(row.op);
      std::array<Scalar, 3> x;
      for (size_t k = 0; k < x.size(); k++) {
        const bool isReal = isFloatingPoint(dtype) && !(row.op == Where && k == 0);
        x[k] = isReal ? realScalar(row.real[k]) : integerScalar(row.whole[k]);
      }
      const Scalar got = applyPoint(row.op, dtype, std::span(x).first(info(row.op).arity));
      if (isFloatingPoint(dtype) && !info(row.op).givesBool) {
        EXPECT_TRUE(agrees(row, dtype, got.real, 2)) << name(dtype) << " " << row.text << "got " << got.real;
      } else {
        EXPECT_EQ(got.integer, row.wholeResult) << name(dtype) << " " << row.text;
      }
    }
    for (const PointOpInfo& op : kPointOps) {
      EXPECT_EQ(ops.contains(op.op), accepts(op.types, dtype) && !mayRefuse(op.op)) << name(dtype) << " " << op.name;
    }
  }
}

TEST(Scalar, AnIndexOutOfRangeIsRefused) {
  for (DataType dtype : {DataType::Int, DataType::Int32, DataType::Char}) {
    EXPECT_EQ(whole(CheckedIndex, dtype, {0, 4}), 0);
    EXPECT_EQ(whole(CheckedIndex, dtype, {3, 4}), 3);
    for (int64_t bad : {int64_t{-1}, int64_t{4}, int64_t{1} << 30}) {
      EXPECT_THROW((void)whole(CheckedIndex, dtype, {bad, 4}), UserError) << bad;
    }
    EXPECT_THROW((void)whole(CheckedIndex, dtype, {0, 0}), UserError);
  }
}

TEST(Scalar, Casts) {
  auto toInt = [](double x, DataType to) { return castScalar(realScalar(x), DataType::Double, to).integer; };
  EXPECT_EQ(toInt(-1.9, DataType::Int), -1);
  // as a tensor converts (tensor/element.cpp)
  for (const DataType to : {DataType::Int, DataType::Int32, DataType::Short, DataType::Char, DataType::UInt16,
                            DataType::Byte, DataType::Bool}) {
    for (const double x : {kNaN, kInf, -kInf, 1e19, -1e19, 3e9, -3e9, 70000.0, -1.0, 300.5, -129.5, 127.9, -0.5}) {
      EXPECT_EQ(toInt(x, to), Tensor::scalar(x, DataType::Double).to(to).item()) << x << " to " << name(to);
    }
  }
  EXPECT_EQ(toInt(kNaN, DataType::Bool), 1);
  EXPECT_EQ(toInt(0.25, DataType::Bool), 1);
  EXPECT_EQ(castScalar(integerScalar((int64_t{1} << 32) + 5), DataType::Int, DataType::Int32).integer, 5);
  EXPECT_EQ(castScalar(integerScalar(16777217), DataType::Int, DataType::Float).real, 16777216);
  EXPECT_EQ(castScalar(realScalar(1 + 0x1p-9), DataType::Float, DataType::BFloat16).real, 1);
  EXPECT_EQ(castScalar(realScalar(70000), DataType::Float, DataType::Half).real, kInf);
}

TEST(Scalar, ReductionsAndTheirIdentities) {
  for (DataType dtype : {DataType::Float, DataType::Int, DataType::Int32, DataType::Short, DataType::Char}) {
    for (ReduceOp op : {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min}) {
      Reduction r(op, dtype);
      Scalar x = isFloatingPoint(dtype) ? realScalar(-3) : integerScalar(-3);
      r.add(x);
      EXPECT_EQ(isFloatingPoint(dtype) ? r.result().real : static_cast<double>(r.result().integer), -3);
    }
  }
  Reduction max(ReduceOp::Max, DataType::Float);
  max.add(realScalar(kNaN));
  max.add(realScalar(1));
  EXPECT_TRUE(std::isnan(max.result().real));
  EXPECT_EQ(Reduction(ReduceOp::And, DataType::Bool).result().integer, 1);
  EXPECT_EQ(Reduction(ReduceOp::And, DataType::Int32).result().integer, -1);
  EXPECT_EQ(Reduction(ReduceOp::Max, DataType::Int32).result().integer, INT32_MIN);
}

// Known answers of the authors' distribution (Random123, kat_vectors).
TEST(Scalar, PhiloxKnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace meshfuse::tile
