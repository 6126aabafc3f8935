#include "ops/reduction.h"

#include <cmath>

#include "ops/built.h"

namespace meshfuse {
namespace {

using Reduce = TensorView* (*)(TensorView*, const Axes&, bool);

TensorView* sumOf(TensorView* x, const Axes& axes, bool keep) { return sum(x, axes, keep); }
TensorView* prodOf(TensorView* x, const Axes& axes, bool keep) { return prod(x, axes, keep); }
TensorView* maxOf(TensorView* x, const Axes& axes, bool keep) { return max(x, axes, keep); }
TensorView* minOf(TensorView* x, const Axes& axes, bool keep) { return min(x, axes, keep); }
TensorView* meanOf(TensorView* x, const Axes& axes, bool keep) { return mean(x, axes, keep); }

TEST(Reduction, OverEachDimAndAll) {
  Tensor x = counting({2, 3});
  auto values = [&](Reduce f, const Axes& axes) {
    return run1({x}, [&](const Views& v) { return f(v[0], axes, false); }).toVector();
  };
  EXPECT_EQ(values(sumOf, {0}), (std::vector<double>{3, 5, 7}));
  EXPECT_EQ(values(sumOf, {-1}), (std::vector<double>{3, 12}));
  EXPECT_EQ(values(sumOf, {1, 0}), (std::vector<double>{15}));
  EXPECT_EQ(values(sumOf, {}), (std::vector<double>{15}));
  EXPECT_EQ(values(prodOf, {1}), (std::vector<double>{0, 60}));
  EXPECT_EQ(values(maxOf, {0}), (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(values(minOf, {1}), (std::vector<double>{0, 3}));
  EXPECT_EQ(values(meanOf, {1}), (std::vector<double>{1, 4}));
}

TEST(Reduction, KeepDimAndTypes) {
  Tensor x = counting({2, 3}, DataType::Int32);
  Tensor y = run1({x}, [](const Views& v) { return sum(v[0], {1}, true); });
  EXPECT_EQ(sizesOf(y), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(y.dtype(), DataType::Int);
  EXPECT_EQ(run1({x}, [](const Views& v) { return sum(v[0], {1}, false, DataType::Int32); }).dtype(), DataType::Int32);
  EXPECT_EQ(run1({x}, [](const Views& v) { return max(v[0], {1}); }).dtype(), DataType::Int32);
  EXPECT_EQ(run1({x}, [](const Views& v) { return mean(v[0], {1}); }).dtype(), DataType::Float);
  EXPECT_EQ(run1({x}, [](const Views& v) { return sum(gt(v[0], 1), {0, 1}); }).item(), 4);
}

TEST(Reduction, SixteenBitsAccumulateInFloat) {
  Tensor ones = Tensor::full({1000}, DataType::BFloat16, 1);
  Tensor y = run1({ones}, [](const Views& v) { return sum(v[0], {0}); });
  EXPECT_EQ(y.dtype(), DataType::Float);
  EXPECT_EQ(y.item(), 1000);
  Tensor z = run1({ones}, [](const Views& v) { return sum(v[0], {0}, false, DataType::BFloat16); });
  EXPECT_EQ(z.dtype(), DataType::BFloat16);
  EXPECT_EQ(z.item(), 1000);
  EXPECT_EQ(run1({ones}, [](const Views& v) { return mean(v[0], {0}); }).item(), 1);
}

TEST(Reduction, EmptyDimsGiveIdentities) {
  Tensor x = Tensor::zeros({3, 4, 0, 5}, DataType::Float);
  EXPECT_EQ(sizesOf(run1({x}, [](const Views& v) { return sum(v[0], {0}); })), (std::vector<int64_t>{4, 0, 5}));
  struct Row {
    Reduce reduce;
    double identity;
  };
  for (const Row& row : {Row{sumOf, 0}, Row{prodOf, 1}, Row{maxOf, -kInf}, Row{minOf, kInf}}) {
    Tensor y = run1({x}, [&](const Views& v) { return row.reduce(v[0], {2}, false); });
    EXPECT_EQ(y.toVector(), std::vector<double>(60, row.identity));
    EXPECT_EQ(run1({x}, [&](const Views& v) { return row.reduce(v[0], {0, 1, 2, 3}, false); }).item(), row.identity);
  }
  EXPECT_TRUE(std::isnan(run1({x}, [](const Views& v) { return mean(v[0], {}); }).item()));
  EXPECT_EQ(run1({x}, [](const Views& v) { return any(v[0], {}); }).item(), 0);
  EXPECT_EQ(run1({x}, [](const Views& v) { return all(v[0], {}); }).item(), 1);
  Tensor n = Tensor::zeros({0}, DataType::Int32);
  EXPECT_EQ(run1({n}, [](const Views& v) { return max(v[0], {0}); }).item(), -2147483648.0);
  EXPECT_EQ(run1({n}, [](const Views& v) { return min(v[0], {0}); }).item(), 2147483647.0);
  EXPECT_EQ(run1({n}, [](const Views& v) { return bitwise_and(v[0], {0}); }).item(), -1);
  EXPECT_EQ(run1({n}, [](const Views& v) { return bitwise_xor(v[0], {0}); }).item(), 0);
}

TEST(Reduction, WithoutDims) {
  Tensor x = Tensor::scalar(3);
  for (bool keep : {false, true}) {
    for (int64_t axis : {0, -1}) {
      Tensor y = run1({x}, [&](const Views& v) { return sum(v[0], {axis}, keep); });
      EXPECT_EQ(y.dim(), 0);
      EXPECT_EQ(y.item(), 3);
    }
  }
  EXPECT_EQ(run1({x}, [](const Views& v) { return mean(v[0], {}); }).item(), 3);
}

TEST(Reduction, MaxAndMinPropagateNanWherever) {
  for (int where : {0, 2, 4}) {
    std::vector<double> row = {-1, 4, 2, -3, 0};
    row[where] = kNan;
    Tensor x = Tensor::of(row, {5});
    EXPECT_TRUE(std::isnan(run1({x}, [](const Views& v) { return max(v[0], {0}); }).item()));
    EXPECT_TRUE(std::isnan(run1({x}, [](const Views& v) { return min(v[0], {0}); }).item()));
  }
  Tensor low = Tensor::full({4}, DataType::Float, -kInf);
  EXPECT_EQ(run1({low}, [](const Views& v) { return max(v[0], {0}); }).item(), -kInf);
  Tensor negative = Tensor::full({4}, DataType::Float, -5);
  EXPECT_EQ(run1({negative}, [](const Views& v) { return max(v[0], {0}); }).item(), -5);
}

TEST(Reduction, LogicAndBits) {
  Tensor x = Tensor::of({0, 0, 3, 0, 5, 6}, {2, 3}, DataType::Int);
  auto values = [&](const std::function<TensorView*(const Views&)>& f) { return run1({x}, f).toVector(); };
  EXPECT_EQ(values([](const Views& v) { return any(v[0], {0}); }), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(values([](const Views& v) { return all(v[0], {0}); }), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_and(v[0], {0}); }), (std::vector<double>{0, 0, 2}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_or(v[0], {0}); }), (std::vector<double>{0, 5, 7}));
  EXPECT_EQ(values([](const Views& v) { return bitwise_xor(v[0], {0}); }), (std::vector<double>{0, 5, 5}));
  EXPECT_EQ(values([](const Views& v) { return max(gt(v[0], 0), {0}); }), (std::vector<double>{0, 1, 1}));
}

TEST(Reduction, SumToUndoesABroadcast) {
  Tensor x = counting({2, 3, 4});
  Tensor y = run1({x}, [](const Views& v) { return sum_to(v[0], {3, 1}); });
  ASSERT_EQ(sizesOf(y), (std::vector<int64_t>{3, 1}));
  for (int64_t j = 0; j < 3; j++) {
    double expected = 0;
    for (int64_t i = 0; i < 2; i++) {
      for (int64_t k = 0; k < 4; k++) {
        expected += x.at({i, j, k});
      }
    }
    EXPECT_EQ(y.at({j, 0}), expected);
  }
}

TEST(Reduction, ReducedDimsStayMarked) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* y = sum(makeConcreteTensor({4, 8}), {0});
  ASSERT_EQ(y->getLogicalDomain().size(), 2);
  EXPECT_TRUE(y->getLogicalDomain()[0]->isReduction());
  EXPECT_EQ(y->noReductions().size(), 1);
}

}  // namespace
}  // namespace meshfuse
