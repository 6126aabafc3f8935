#include "base/error.h"
#include "ops/built.h"

namespace meshfuse {
namespace {

DataType typeOf(const std::function<TensorView*()>& define) { return define()->dtype(); }

struct Pair {
  DataType a, b, met;
};

TEST(Promotion, TensorsMeetInPyTorchsType) {
  using enum DataType;
  const std::vector<Pair> pairs = {
      {Bool, Int32, Int32},   {Int32, Int, Int},          {Int, Half, Half},          {Half, BFloat16, Float},
      {Half, Float, Float},   {Float, Double, Double},    {Bool, BFloat16, BFloat16}, {Int32, Double, Double},
      {Bool, Char, Char},     {Char, Short, Short},       {Short, Int32, Int32},      {Char, Int, Int},
      {Short, Half, Half},    {Char, BFloat16, BFloat16}, {Bool, Byte, Byte},         {Byte, Char, Short},
      {Byte, Short, Short},   {Byte, Int32, Int32},       {Byte, Int, Int},           {Byte, Half, Half},
      {Byte, UInt16, UInt16}, {UInt16, Char, Int32},      {UInt16, Short, Int32},     {UInt16, Int32, Int32},
      {UInt16, Int, Int},     {UInt16, Float, Float}};
  for (const Pair& pair : pairs) {
    EXPECT_EQ(promoteTypes(pair.a, pair.b), pair.met);
    EXPECT_EQ(promoteTypes(pair.b, pair.a), pair.met);
  }
}

TEST(Promotion, ScalarsRaiseOnlyTheCategory) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  auto tensor = [](DataType t) { return makeSymbolicTensor(1, t); };
  EXPECT_EQ(typeOf([&] { return add(tensor(DataType::Float), 1.0); }), DataType::Float);
  EXPECT_EQ(typeOf([&] { return add(tensor(DataType::Int32), 1); }), DataType::Int32);
  EXPECT_EQ(typeOf([&] { return add(tensor(DataType::Int32), 1.5); }), DataType::Float);
  EXPECT_EQ(typeOf([&] { return add(tensor(DataType::Bool), 1); }), DataType::Int);
  EXPECT_EQ(typeOf([&] { return mul(2.0, tensor(DataType::Double)); }), DataType::Double);
  EXPECT_EQ(typeOf([&] { return add(tensor(DataType::Half), 1.0); }), DataType::Float);
  EXPECT_EQ(typeOf([&] { return add(tensor(DataType::Int), true); }), DataType::Int);
}

TEST(Promotion, NarrowIntegersStayNarrowUntilTheyAddUp) {
  for (DataType type : {DataType::Char, DataType::Short, DataType::Byte, DataType::UInt16}) {
    Fusion fusion;
    FusionGuard guard(&fusion);
    TensorView* x = makeSymbolicTensor(2, type);
    EXPECT_EQ(add(x, 1)->dtype(), type);
    EXPECT_EQ(add(x, 1.5)->dtype(), DataType::Float);
    EXPECT_EQ(bitwise_left_shift(x, x)->dtype(), type);
    EXPECT_EQ(exp(x)->dtype(), DataType::Float);
    EXPECT_EQ(max(x, {0})->dtype(), type);
    EXPECT_EQ(bitwise_xor(x, {0})->dtype(), type);
    EXPECT_EQ(sum(x, {0})->dtype(), DataType::Int);
    EXPECT_EQ(prod(x, {0})->dtype(), DataType::Int);
    EXPECT_EQ(cumsum(x, 0)->dtype(), DataType::Int);
    EXPECT_EQ(mean(x, {0})->dtype(), DataType::Float);
    EXPECT_EQ(sum(x, {0}, false, type)->dtype(), type);
  }
}

TEST(Promotion, TensorsWithoutDimsRaiseOnlyTheCategory) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeSymbolicTensor(1, DataType::Float);
  TensorView* n = makeSymbolicTensor(1, DataType::Int32);
  TensorView* d0 = makeSymbolicTensor(0, DataType::Double);
  EXPECT_EQ(add(x, d0)->dtype(), DataType::Float);
  EXPECT_EQ(add(n, d0)->dtype(), DataType::Double);
  EXPECT_EQ(add(d0, 1.0)->dtype(), DataType::Double);
}

TEST(Promotion, SixteenBitsComputeInFloat) {
  Tensor a = Tensor::of({256, 1}, {2}, DataType::BFloat16);
  Tensor y = run1({a}, [](const Views& v) { return add(v[0], v[0]); });
  EXPECT_EQ(y.dtype(), DataType::Float);
  // 256 + 1 needs nine bits: in BFloat16 it would be 256
  Tensor z = run1({a}, [](const Views& v) { return add(v[0], 1.0); });
  EXPECT_EQ(z.toVector(), (std::vector<double>{257, 2}));
  Tensor back = run1({a}, [](const Views& v) { return castOp(DataType::BFloat16, add(v[0], 1.0)); });
  EXPECT_EQ(back.dtype(), DataType::BFloat16);
  EXPECT_EQ(back.toVector(), (std::vector<double>{256, 2}));
}

TEST(Promotion, CopiesAndShapesKeepSixteenBits) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeConcreteTensor({2, 3}, DataType::Half);
  EXPECT_EQ(set(x)->dtype(), DataType::Half);
  EXPECT_EQ(reshape(x, {3, 2})->dtype(), DataType::Half);
  EXPECT_EQ(cat({x, x}, 0)->dtype(), DataType::Half);
  EXPECT_EQ(matmul(x, transpose(x))->dtype(), DataType::Half);
  EXPECT_EQ(sum(x, {0})->dtype(), DataType::Float);
  EXPECT_EQ(gt(x, 0)->dtype(), DataType::Bool);
}

TEST(Promotion, FloatingOpsConvertIntegers) {
  Tensor a = Tensor::of({0, 1}, {2}, DataType::Int);
  Tensor y = run1({a}, [](const Views& v) { return exp(v[0]); });
  EXPECT_EQ(y.dtype(), DataType::Float);
  EXPECT_FLOAT_EQ(static_cast<float>(y.at({1})), 2.7182817f);
}

TEST(Promotion, BoolsAddAsOr) {
  Tensor a = Tensor::of({0, 0, 1, 1}, {4}, DataType::Bool);
  Tensor b = Tensor::of({0, 1, 0, 1}, {4}, DataType::Bool);
  auto check = [&](const std::function<TensorView*(const Views&)>& f, DataType type, std::vector<double> expected) {
    Tensor y = run1({a, b}, f);
    EXPECT_EQ(y.dtype(), type);
    EXPECT_EQ(y.toVector(), expected);
  };
  check([](const Views& v) { return add(v[0], v[1]); }, DataType::Bool, {0, 1, 1, 1});
  check([](const Views& v) { return mul(v[0], v[1]); }, DataType::Bool, {0, 0, 0, 1});
  check([](const Views& v) { return maximum(v[0], v[1]); }, DataType::Bool, {0, 1, 1, 1});
  check([](const Views& v) { return sub(v[0], v[1]); }, DataType::Int, {0, -1, 1, 0});
}

TEST(Promotion, ScalarsAreRoundedToTheElementType) {
  Tensor a = Tensor::of({0.1}, {1});
  EXPECT_EQ(run1({a}, [](const Views& v) { return eq(v[0], 0.1); }).item(), 1);
}

TEST(Promotion, NumbersBeyond64BitsAreRefused) {
  const Tensor a = Tensor::of({1}, {1});
  EXPECT_THROW(static_cast<void>(run1({a}, [](const Views& v) { return add(v[0], UINT64_MAX); })), UserError);
  EXPECT_THROW(static_cast<void>(run1({a}, [](const Views& v) { return reshape(v[0], {uint64_t{1} << 63}); })),
               UserError);
}

TEST(Integers, DivisionTruncatesAndByZeroGivesZero) {
  constexpr double kMin = -0x1p63;
  Tensor a = Tensor::of({7, -7, 7, -7, 5, kMin}, {6}, DataType::Int);
  Tensor b = Tensor::of({2, 2, -2, -2, 0, -1}, {6}, DataType::Int);
  auto values = [&](const std::function<TensorView*(const Views&)>& f) { return run1({a, b}, f).toVector(); };
  EXPECT_EQ(values([](const Views& v) { return div(v[0], v[1]); }), (std::vector<double>{3, -3, -3, 3, 0, kMin}));
  EXPECT_EQ(values([](const Views& v) { return mod(v[0], v[1]); }), (std::vector<double>{1, -1, 1, -1, 0, 0}));
  EXPECT_EQ(values([](const Views& v) { return fmod(v[0], v[1]); }), (std::vector<double>{1, -1, 1, -1, 0, 0}));
  EXPECT_EQ(values([](const Views& v) { return remainder(v[0], v[1]); }), (std::vector<double>{1, 1, -1, -1, 0, 0}));
  EXPECT_EQ(values([](const Views& v) { return ceilDiv(v[0], v[1]); }), (std::vector<double>{4, -3, -3, 4, 0, kMin}));
}

TEST(Integers, Int32WrapsAtItsWidth) {
  Tensor a = Tensor::of({2147483647, -2147483648.0, 65536}, {3}, DataType::Int32);
  auto values = [&](const std::function<TensorView*(const Views&)>& f) { return run1({a}, f).toVector(); };
  EXPECT_EQ(values([](const Views& v) { return add(v[0], 1); }),
            (std::vector<double>{-2147483648.0, -2147483647, 65537}));
  EXPECT_EQ(values([](const Views& v) { return neg(v[0]); }),
            (std::vector<double>{-2147483647, -2147483648.0, -65536}));
  EXPECT_EQ(values([](const Views& v) { return abs(v[0]); }), (std::vector<double>{2147483647, -2147483648.0, 65536}));
  EXPECT_EQ(values([](const Views& v) { return mul(v[0], v[0]); }), (std::vector<double>{1, 0, 0}));
  EXPECT_EQ(values([](const Views& v) { return div(v[0], -1); }),
            (std::vector<double>{-2147483647, -2147483648.0, -65536}));
}

TEST(Integers, ShiftsByTheWidthOrMore) {
  Tensor a = Tensor::of({1, -8, 1, -8, 5, -1}, {6}, DataType::Int32);
  Tensor n = Tensor::of({31, 1, 32, 40, -1, -2}, {6}, DataType::Int32);
  auto values = [&](const std::function<TensorView*(const Views&)>& f) { return run1({a, n}, f).toVector(); };
  EXPECT_EQ(values([](const Views& v) { return bitwise_left_shift(v[0], v[1]); }),
            (std::vector<double>{-2147483648.0, -16, 0, 0, 0, 0}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_right_shift(v[0], v[1]); }),
            (std::vector<double>{0, -4, 0, -1, 0, -1}));
}

TEST(Integers, PowersGcdAndBits) {
  Tensor a = Tensor::of({3, -2, 1, -1, 2, 12}, {6}, DataType::Int);
  Tensor b = Tensor::of({4, 3, -5, -3, -1, 18}, {6}, DataType::Int);
  auto values = [&](const std::function<TensorView*(const Views&)>& f) { return run1({a, b}, f).toVector(); };
  std::vector<double> powers = values([](const Views& v) { return pow(v[0], v[1]); });
  powers.pop_back();  // 12^18 wraps
  EXPECT_EQ(powers, (std::vector<double>{81, -8, 1, -1, 0}));
  EXPECT_EQ(values([](const Views& v) { return gcd(v[0], v[1]); }), (std::vector<double>{1, 1, 1, 1, 1, 6}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_and(v[0], v[1]); }), (std::vector<double>{0, 2, 1, -3, 2, 0}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_or(v[0], v[1]); }),
            (std::vector<double>{7, -1, -5, -1, -1, 30}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_xor(v[0], v[1]); }),
            (std::vector<double>{7, -3, -6, 2, -3, 30}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_not(v[0]); }), (std::vector<double>{-4, 1, -2, 0, -3, -13}));
  EXPECT_EQ(values([](const Views& v) { return sign(v[0]); }), (std::vector<double>{1, -1, 1, -1, 1, 1}));
  EXPECT_EQ(run1({a}, [](const Views& v) { return bitwise_not(gt(v[0], 1)); }).toVector(),
            (std::vector<double>{0, 1, 1, 1, 0, 0}));
}

}  // namespace
}  // namespace meshfuse
