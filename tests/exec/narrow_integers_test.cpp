// Char and Short, compiled: results by hand at the ends of their ranges, and against the interpreter.
#include <gtest/gtest.h>

#include <vector>

#include "exec/integer_programs.h"
#include "stress/on_ranks.h"

namespace meshfuse {
namespace {

TEST(NarrowIntegers, ArithmeticWraps) {
  using enum DataType;
  auto plus = [](TensorView* a, TensorView* b) { return add(a, b); };
  auto minus = [](TensorView* a, TensorView* b) { return sub(a, b); };
  auto times = [](TensorView* a, TensorView* b) { return mul(a, b); };
  auto quotient = [](TensorView* a, TensorView* b) { return div(a, b); };
  auto rest = [](TensorView* a, TensorView* b) { return remainder(a, b); };
  auto left = [](TensorView* a, TensorView* b) { return bitwise_left_shift(a, b); };
  auto right = [](TensorView* a, TensorView* b) { return bitwise_right_shift(a, b); };
  EXPECT_EQ(binary(Char, {127, -128, 100}, {1, -1, 100}, plus), (Values{-128, 127, -56}));
  EXPECT_EQ(binary(Short, {32767, -32768}, {1, -1}, plus), (Values{-32768, 32767}));
  EXPECT_EQ(binary(Char, {-128, 0}, {1, -128}, minus), (Values{127, -128}));
  EXPECT_EQ(binary(Char, {-128, 16, 11}, {-1, 16, 12}, times), (Values{-128, 0, -124}));
  EXPECT_EQ(binary(Short, {-32768, 300}, {-1, 300}, times), (Values{-32768, 24464}));
  EXPECT_EQ(binary(Char, {-128, -7, 5}, {-1, 2, 0}, quotient), (Values{-128, -3, 0}));
  EXPECT_EQ(binary(Short, {-32768, 7}, {-1, -2}, quotient), (Values{-32768, -3}));
  EXPECT_EQ(binary(Char, {-128, -128, 127}, {-1, 3, -2}, rest), (Values{0, 1, -1}));
  EXPECT_EQ(binary(Char, {1, 1, 1, 3}, {7, 8, -1, 6}, left), (Values{-128, 0, 0, -64}));
  EXPECT_EQ(binary(Short, {1, 1}, {15, 16}, left), (Values{-32768, 0}));
  EXPECT_EQ(binary(Char, {-128, -128, 64}, {7, 100, 6}, right), (Values{-1, -1, 1}));
  EXPECT_EQ(binary(Char, {-128, 64}, {-1, -7}, right), (Values{-1, 0}));
}

TEST(NarrowIntegers, WhatWrapsInTheMiddleIsCutThere) {
  // (100 + 100) / 2 is -28 where the sum is a Char, 100 where it is an int.
  auto mean = [](TensorView* a, TensorView* b) { return div(add(a, b), full_like(a, 2)); };
  EXPECT_EQ(binary(DataType::Char, {100}, {100}, mean), (Values{-28}));
  auto above = [](TensorView* a, TensorView* b) { return gt(mul(a, b), a); };
  EXPECT_EQ(binary(DataType::Short, {200, 2}, {200, 3}, above), (Values{0, 1}));
}

TEST(NarrowIntegers, UnaryOpsAtTheEnds) {
  for (DataType type : {DataType::Char, DataType::Short}) {
    const auto low = static_cast<double>(lowestInteger(type));
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = symbolicInput(f, 1, type);
      for (TensorView* y : {abs(x), neg(x), bitwise_not(x), sign(x)}) {
        f.addOutput(y);
      }
      f.addOutput(castOp(DataType::Float, x));
      f.addOutput(castOp(DataType::Int, x));
      f.addOutput(castOp(DataType::Bool, x));
    });
    ASSERT_EQ(checked.call({Tensor::of({low, -low - 1, -1, 0}, {4}, type)}), "");
    const std::vector<Tensor>& y = checked.results();
    EXPECT_EQ(y[0].dtype(), type);
    EXPECT_EQ(y[0].toVector(), (Values{low, -low - 1, 1, 0}));
    EXPECT_EQ(y[1].toVector(), (Values{low, low + 1, 1, 0}));
    EXPECT_EQ(y[2].toVector(), (Values{-low - 1, low, 0, -1}));
    EXPECT_EQ(y[3].toVector(), (Values{-1, 1, -1, 0}));
    EXPECT_EQ(y[4].toVector(), (Values{low, -low - 1, -1, 0}));
    EXPECT_EQ(y[5].toVector(), (Values{low, -low - 1, -1, 0}));
    EXPECT_EQ(y[6].toVector(), (Values{1, 1, 1, 0}));
  }
}

TEST(NarrowIntegers, CastsFromWiderIntegersWrap) {
  CheckedCache checked([&](Fusion& f) {
    TensorView* x = symbolicInput(f, 1, DataType::Int);
    f.addOutput(castOp(DataType::Char, x));
    f.addOutput(castOp(DataType::Short, x));
  });
  ASSERT_EQ(checked.call({Tensor::of({128, -129, 32768, 65535, 1e15}, {5}, DataType::Int)}), "");
  EXPECT_EQ(checked.results()[0].toVector(), (Values{-128, 127, 0, -1, 0}));
  EXPECT_EQ(checked.results()[1].toVector(), (Values{128, -129, -32768, -1, -32768}));
}

// Of more elements than a Char counts, over rows and columns: sums are Int unless another type is asked for.
TEST(NarrowIntegers, Reductions) {
  for (DataType type : {DataType::Char, DataType::Short}) {
    for (int64_t axis : {0, 1}) {
      CheckedCache checked([&](Fusion& f) {
        TensorView* x = symbolicInput(f, 2, type);
        f.addOutput(sum(x, {axis}));
        f.addOutput(sum(x, {axis}, false, type));
        f.addOutput(max(x, {axis}));
        f.addOutput(min(x, {axis}));
        f.addOutput(bitwise_and(x, {axis}));
        f.addOutput(mean(x, {axis}));
      });
      ASSERT_EQ(checked.call({Tensor::full({300, 300}, type, 100)}), "");
      EXPECT_EQ(checked.results()[0].dtype(), DataType::Int);
      EXPECT_EQ(checked.results()[0].toVector(), Values(300, 30000));
      EXPECT_EQ(checked.results()[1].dtype(), type);
      EXPECT_EQ(checked.results()[1].toVector(), Values(300, type == DataType::Char ? 48 : 30000));
      EXPECT_EQ(checked.results()[2].toVector(), Values(300, 100));
      const Tensor any = randomTensor({70, 130}, type, 3, static_cast<double>(lowestInteger(type)),
                                      static_cast<double>(highestInteger(type)));
      EXPECT_EQ(checked.call({any}), "");
      EXPECT_EQ(checked.call({Tensor::empty({axis == 0 ? 0 : 3, axis == 0 ? 3 : 0}, type)}), "");
      EXPECT_EQ(checked.results()[2].toVector(), Values(3, static_cast<double>(lowestInteger(type))));
      EXPECT_EQ(checked.results()[3].toVector(), Values(3, static_cast<double>(highestInteger(type))));
    }
  }
}

TEST(NarrowIntegers, OrdersScansAndIndices) {
  for (DataType type : {DataType::Char, DataType::Short}) {
    CheckedCache checked([&](Fusion& f) {
      TensorView* x = symbolicInput(f, 2, type);
      SortResult sorted = sort(x, 1, true);
      f.addOutput(sorted.values);
      f.addOutput(cumsum(x, 1));
      f.addOutput(cumsum(x, 1, type));
      f.addOutput(scan(x, 1, ReduceOp::Max));
      f.addOutput(argmin(x, 1));
      TensorView* rows = symbolicInput(f, 1, type);  // positions of rows of a table that is longer than a Char counts
      f.addOutput(index_select(symbolicInput(f, 2, DataType::Float), 0, rows));
    });
    const auto low = static_cast<double>(lowestInteger(type));
    Tensor x = Tensor::of({5, low, -low - 1, -1}, {1, 4}, type);
    Tensor rows = Tensor::of({127, 0, 99}, {3}, type);
    ASSERT_EQ(checked.call({x, rows, randomTensor({1000, 2}, DataType::Float, 1)}), "");
    const std::vector<Tensor>& y = checked.results();
    EXPECT_EQ(y[0].toVector(), (Values{-low - 1, 5, -1, low}));
    EXPECT_EQ(y[1].toVector(), (Values{5, 5 + low, 4, 3}));
    EXPECT_EQ(y[2].toVector(), (Values{5, 5 + low, 4, 3}));
    EXPECT_EQ(y[3].toVector(), (Values{5, 5, -low - 1, -low - 1}));
    EXPECT_EQ(y[4].item(), 1);
    EXPECT_NE(errorOf([&] {
                checked.call({x, Tensor::of({0, -1, 3}, {3}, type), randomTensor({1000, 2}, DataType::Float, 1)});
              }).find("UserError"),
              std::string::npos);
  }
}

TEST(NarrowIntegers, AddUpAcrossRanks) {
  for (DataType type : {DataType::Char, DataType::Short}) {
    const auto low = static_cast<double>(lowestInteger(type));
    expectAgreesOnRanks(
        [&](Fusion& f, int64_t ranks) {
          TensorView* x = cut(symbolicInput(f, 2, type), 0, ranks);
          f.addOutput(sum(x, {0}));
          f.addOutput(sum(x, {0}, false, type));
          f.addOutput(max(x, {0}));
          f.addOutput(bitwise_xor(x, {0}));
        },
        {{.inputs = {randomTensor({8, 5}, type, 1, low, -low)}}});
  }
}

TEST(NarrowIntegers, ProductsOfMatrices) {
  CheckedCache checked([&](Fusion& f) {
    TensorView* a = symbolicInput(f, 2, DataType::Char);
    TensorView* b = symbolicInput(f, 2, DataType::Char);
    f.addOutput(matmul(a, b));
    f.addOutput(linear(a, b, symbolicInput(f, 1, DataType::Char)));
  });
  Tensor a = randomTensor({5, 5}, DataType::Char, 1, -128, 128);
  Tensor b = randomTensor({5, 5}, DataType::Char, 2, -128, 128);
  EXPECT_EQ(checked.call({a, b, randomTensor({5}, DataType::Char, 3, -128, 128)}), "");
  EXPECT_EQ(checked.results()[0].dtype(), DataType::Char);
}

TEST(NarrowIntegers, ScalarsAreCutToTheElementsTheyMeet) {
  CheckedCache checked([&](Fusion& f) {
    TensorView* x = symbolicInput(f, 1, DataType::Char);
    Val* s = IrBuilder::create<Val>(f, DataType::Int);
    f.addInput(s);
    f.addOutput(add(x, s));
    f.addOutput(add(x, 300));
  });
  ASSERT_EQ(checked.call({Tensor::of({1, 100}, {2}, DataType::Char), int64_t{200}}), "");
  EXPECT_EQ(checked.results()[0].toVector(), (Values{-55, 44}));
  EXPECT_EQ(checked.results()[1].toVector(), (Values{45, -112}));
}

}  // namespace
}  // namespace meshfuse
