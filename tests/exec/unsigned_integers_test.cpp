// Byte and UInt16, compiled: results by hand at the ends of their ranges, as PyTorch's uint8 gives them, and against the interpreter.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "exec/integer_programs.h"
#include "stress/on_ranks.h"

namespace meshfuse {
namespace {

using enum DataType;

TEST(UnsignedIntegers, ArithmeticWraps) {
  auto plus = [](TensorView* a, TensorView* b) { return add(a, b); };
  auto minus = [](TensorView* a, TensorView* b) { return sub(a, b); };
  auto times = [](TensorView* a, TensorView* b) { return mul(a, b); };
  auto quotient = [](TensorView* a, TensorView* b) { return div(a, b); };
  auto rest = [](TensorView* a, TensorView* b) { return remainder(a, b); };
  auto left = [](TensorView* a, TensorView* b) { return bitwise_left_shift(a, b); };
  auto right = [](TensorView* a, TensorView* b) { return bitwise_right_shift(a, b); };
  EXPECT_EQ(binary(Byte, {255, 200, 1}, {1, 100, 2}, plus), (Values{0, 44, 3}));
  EXPECT_EQ(binary(UInt16, {65535, 40000}, {1, 40000}, plus), (Values{0, 14464}));
  EXPECT_EQ(binary(Byte, {0, 3, 255}, {1, 5, 255}, minus), (Values{255, 254, 0}));
  EXPECT_EQ(binary(Byte, {255, 16, 200}, {255, 16, 2}, times), (Values{1, 0, 144}));
  EXPECT_EQ(binary(UInt16, {65535, 300}, {65535, 300}, times), (Values{1, 24464}));
  EXPECT_EQ(binary(Byte, {255, 200, 7, 7}, {1, 255, 200, 0}, quotient), (Values{255, 0, 0, 0}));
  EXPECT_EQ(binary(UInt16, {65535, 60000}, {2, 65535}, quotient), (Values{32767, 0}));
  EXPECT_EQ(binary(Byte, {255, 200, 255}, {128, 255, 255}, rest), (Values{127, 200, 0}));
  EXPECT_EQ(binary(Byte, {1, 1, 3, 1}, {7, 8, 7, 255}, left), (Values{128, 0, 128, 0}));
  EXPECT_EQ(binary(Byte, {255, 255, 128, 255}, {7, 8, 1, 255}, right), (Values{1, 0, 64, 0}));
  EXPECT_EQ(binary(UInt16, {65535, 65535}, {15, 16}, right), (Values{1, 0}));
}

TEST(UnsignedIntegers, HighNumbersAreNotNegative) {
  auto larger = [](TensorView* a, TensorView* b) { return maximum(a, b); };
  auto smaller = [](TensorView* a, TensorView* b) { return minimum(a, b); };
  auto above = [](TensorView* a, TensorView* b) { return gt(a, b); };
  EXPECT_EQ(binary(Byte, {255, 128}, {1, 127}, larger), (Values{255, 128}));
  EXPECT_EQ(binary(UInt16, {65535, 32768}, {1, 32767}, smaller), (Values{1, 32767}));
  EXPECT_EQ(binary(Byte, {255, 127, 128}, {127, 128, 128}, above), (Values{1, 0, 0}));
  for (DataType type : {Byte, UInt16}) {
    const auto high = static_cast<double>(highestInteger(type));
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = symbolicInput(f, 1, type);
      for (TensorView* y : {abs(x), neg(x), bitwise_not(x), sign(x), signbit(x), castOp(Float, x), castOp(Int, x),
                            castOp(Char, x), castOp(Half, x), castOp(Bool, x), truediv(x, x)}) {
        f.addOutput(y);
      }
    });
    ASSERT_EQ(checked.call({Tensor::of({high, 1, 200}, {3}, type)}), "");
    const std::vector<Tensor>& y = checked.results();
    EXPECT_EQ(y[0].dtype(), type);
    EXPECT_EQ(y[0].toVector(), (Values{high, 1, 200}));
    EXPECT_EQ(y[1].toVector(), (Values{1, high, high - 199}));
    EXPECT_EQ(y[2].toVector(), (Values{0, high - 1, high - 200}));
    EXPECT_EQ(y[3].toVector(), (Values{1, 1, 1}));
    EXPECT_EQ(y[4].toVector(), (Values{0, 0, 0}));
    EXPECT_EQ(y[5].toVector(), (Values{high, 1, 200}));
    EXPECT_EQ(y[6].toVector(), (Values{high, 1, 200}));
    EXPECT_EQ(y[7].toVector(), (Values{-1, 1, -56}));
    EXPECT_EQ(y[8].toVector(), (Values{type == Byte ? 255 : std::numeric_limits<double>::infinity(), 1, 200}));
    EXPECT_EQ(y[9].toVector(), (Values{1, 1, 1}));
    EXPECT_EQ(y[10].dtype(), Float);
    EXPECT_EQ(y[10].toVector(), (Values{1, 1, 1}));
  }
}

// Of numbers that fit 64 bits the low bits are kept, as PyTorch does.
TEST(UnsignedIntegers, CastsKeepTheLowBits) {
  for (DataType from : {Float, Double, BFloat16}) {
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = symbolicInput(f, 1, from);
      f.addOutput(castOp(Byte, x));
      f.addOutput(castOp(UInt16, x));
    });
    ASSERT_EQ(checked.call({Tensor::of({-1.5, -0.75, 255, 256, 300, 65536, -32768, 1099511627776}, {8}, from)}), "");
    EXPECT_EQ(checked.results()[0].toVector(), (Values{255, 0, 255, 0, 44, 0, 0, 0}));
    EXPECT_EQ(checked.results()[1].toVector(), (Values{65535, 0, 255, 256, 300, 0, 32768, 0}));
  }
  CheckedCache checked([&](Fusion& f) { f.addOutput(castOp(Byte, symbolicInput(f, 1, Int))); });
  ASSERT_EQ(checked.call({Tensor::of({-1, 256, 511, 1e15}, {4}, Int)}), "");
  EXPECT_EQ(checked.results()[0].toVector(), (Values{255, 0, 255, 0}));
  EXPECT_EQ(Tensor::of({-1, 255, 300.5}, {3}, Byte).toVector(), (Values{255, 255, 44}));
}

// An image of bytes to normalised numbers and back, over more elements than a vector has.
TEST(UnsignedIntegers, Images) {
  CheckedCache checked([&](Fusion& f) {
    TensorView* image = symbolicInput(f, 3, Byte);
    TensorView* normal = sub(mul(castOp(Float, image), 2.0 / 255), 1.0);
    f.addOutput(normal);
    f.addOutput(castOp(Byte, clamp(round(mul(add(normal, 1.0), 127.5)), 0.0, 255.0)));
    f.addOutput(permute(image, {2, 0, 1}));
    f.addOutput(where(gt(image, 127), image, full_like(image, 0)));
  });
  const Tensor image = randomTensor({3, 37, 53}, Byte, 1, 0, 256);
  ASSERT_EQ(checked.call({image}), "");
  EXPECT_EQ(checked.results()[1].toVector(), image.toVector());
  EXPECT_EQ(checked.results()[2].dtype(), Byte);
}

TEST(UnsignedIntegers, Reductions) {
  for (DataType type : {Byte, UInt16}) {
    const auto high = static_cast<double>(highestInteger(type));
    for (int64_t axis : {0, 1}) {
      CheckedCache checked([&](Fusion& f) {
        TensorView* x = symbolicInput(f, 2, type);
        f.addOutput(sum(x, {axis}));
        f.addOutput(sum(x, {axis}, false, type));
        f.addOutput(max(x, {axis}));
        f.addOutput(min(x, {axis}));
        f.addOutput(bitwise_and(x, {axis}));
        f.addOutput(mean(x, {axis}));
        f.addOutput(argmax(x, axis));
      });
      ASSERT_EQ(checked.call({Tensor::full({300, 300}, type, high)}), "");
      EXPECT_EQ(checked.results()[0].dtype(), Int);
      EXPECT_EQ(checked.results()[0].toVector(), Values(300, 300 * high));
      EXPECT_EQ(checked.results()[1].toVector(), Values(300, high + 1 - 300 % (static_cast<int64_t>(high) + 1)));
      EXPECT_EQ(checked.results()[2].toVector(), Values(300, high));
      EXPECT_EQ(checked.results()[4].toVector(), Values(300, high));
      EXPECT_EQ(checked.call({randomTensor({70, 130}, type, 3, 0, high + 1)}), "");
    }
    CheckedCache empty([&](Fusion& f) {
      TensorView* x = symbolicInput(f, 2, type);
      f.addOutput(max(x, {1}));
      f.addOutput(min(x, {1}));
      f.addOutput(bitwise_and(x, {1}));
    });
    ASSERT_EQ(empty.call({Tensor::empty({3, 0}, type)}), "");
    EXPECT_EQ(empty.results()[0].toVector(), Values(3, 0));
    EXPECT_EQ(empty.results()[1].toVector(), Values(3, high));
    EXPECT_EQ(empty.results()[2].toVector(), Values(3, high));
  }
}

TEST(UnsignedIntegers, OrdersScansAndIndices) {
  for (DataType type : {Byte, UInt16}) {
    const auto high = static_cast<double>(highestInteger(type));
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = symbolicInput(f, 2, type);
      SortResult sorted = sort(x, 1, true);
      f.addOutput(sorted.values);
      f.addOutput(cumsum(x, 1));
      f.addOutput(cumsum(x, 1, type));
      f.addOutput(scan(x, 1, ReduceOp::Max));
      f.addOutput(argmin(x, 1));
      TensorView* rows = symbolicInput(f, 1, type);
      f.addOutput(index_select(symbolicInput(f, 2, Float), 0, rows));
    });
    const Tensor x = Tensor::of({5, high, 1, 200}, {1, 4}, type);
    const Tensor table = randomTensor({256, 2}, Float, 1);
    ASSERT_EQ(checked.call({x, Tensor::of({255, 0, 199}, {3}, type), table}), "");
    const std::vector<Tensor>& y = checked.results();
    EXPECT_EQ(y[0].toVector(), (Values{high, 200, 5, 1}));
    EXPECT_EQ(y[1].toVector(), (Values{5, 5 + high, 6 + high, 206 + high}));
    EXPECT_EQ(y[2].toVector(), (Values{5, 4, 5, 205}));
    EXPECT_EQ(y[3].toVector(), (Values{5, high, high, high}));
    EXPECT_EQ(y[4].item(), 2);
    EXPECT_EQ(y[5].toVector()[0], table.toVector()[510]);
    EXPECT_NE(errorOf([&] {
                checked.call({x, Tensor::of({0, 255, 3}, {3}, type), randomTensor({200, 2}, Float, 1)});
              }).find("255"),
              std::string::npos);
  }
}

TEST(UnsignedIntegers, AddUpAcrossRanks) {
  for (DataType type : {Byte, UInt16}) {
    expectAgreesOnRanks(
        [&](Fusion& f, int64_t ranks) {
          TensorView* x = cut(symbolicInput(f, 2, type), 0, ranks);
          f.addOutput(sum(x, {0}));
          f.addOutput(sum(x, {0}, false, type));
          f.addOutput(max(x, {0}));
          f.addOutput(min(x, {0}));
          f.addOutput(bitwise_xor(x, {0}));
        },
        {{.inputs = {randomTensor({8, 5}, type, 1, 0, static_cast<double>(highestInteger(type)) + 1)}}});
  }
}

TEST(UnsignedIntegers, ProductsOfMatrices) {
  CheckedCache checked([&](Fusion& f) {
    TensorView* a = symbolicInput(f, 2, Byte);
    f.addOutput(matmul(a, symbolicInput(f, 2, Byte)));
  });
  EXPECT_EQ(checked.call({randomTensor({5, 5}, Byte, 1, 0, 256), randomTensor({5, 5}, Byte, 2, 0, 256)}), "");
  EXPECT_EQ(checked.results()[0].dtype(), Byte);
}

TEST(UnsignedIntegers, ScalarsAreCutToTheElementsTheyMeet) {
  CheckedCache checked([&](Fusion& f) {
    TensorView* x = symbolicInput(f, 1, Byte);
    Val* s = IrBuilder::create<Val>(f, Int);
    f.addInput(s);
    f.addOutput(add(x, s));
    f.addOutput(sub(x, 2));
    f.addOutput(mul(x, -1));
  });
  ASSERT_EQ(checked.call({Tensor::of({1, 100}, {2}, Byte), int64_t{-2}}), "");
  EXPECT_EQ(checked.results()[0].toVector(), (Values{255, 98}));
  EXPECT_EQ(checked.results()[1].toVector(), (Values{255, 98}));
  EXPECT_EQ(checked.results()[2].toVector(), (Values{255, 156}));
}

}  // namespace
}  // namespace meshfuse
