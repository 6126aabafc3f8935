#include "ops/statistics.h"

#include <cmath>

#include "ops/built.h"

namespace meshfuse {
namespace {

double average(const Row& x) {
  double sum = 0;
  for (double v : x) {
    sum += v;
  }
  return sum / static_cast<double>(x.size());
}

double squaresOf(const Row& x) {
  double sum = 0;
  for (double v : x) {
    sum += (v - average(x)) * (v - average(x));
  }
  return sum;
}

const Row kFirst = {0.5, -1.25, 2, 0.25};
const Row kSecond = {1e6, 1e6 + 1, 1e6 + 2, 1e6 + 4};

Tensor twoRows() {
  Row both = kFirst;
  both.insert(both.end(), kSecond.begin(), kSecond.end());
  return doubles(both, {2, 4});
}

TEST(Statistics, VarianceByCorrection) {
  for (int64_t correction : {0, 1, 2}) {
    double n = static_cast<double>(4 - correction);
    std::vector<Tensor> out = run({twoRows()}, [&](const Views& v) {
      VarMeanResult both = variance_mean(v[0], {1}, correction, true);
      return Views{variance(v[0], {-1}, correction), both.var, both.mean,
                   standard_deviation(v[0], {1}, correction, true)};
    });
    expectNear(out[0], {squaresOf(kFirst) / n, squaresOf(kSecond) / n}, 1e-9);
    expectNear(out[1], out[0].toVector(), 0);
    expectNear(out[2], {average(kFirst), average(kSecond)}, 1e-9);
    expectNear(out[3], {std::sqrt(squaresOf(kFirst) / n), std::sqrt(squaresOf(kSecond) / n)}, 1e-9);
    EXPECT_EQ(sizesOf(out[0]), (std::vector<int64_t>{2}));
    EXPECT_EQ(sizesOf(out[1]), (std::vector<int64_t>{2, 1}));
    EXPECT_EQ(sizesOf(out[2]), (std::vector<int64_t>{2, 1}));
  }
}

TEST(Statistics, UnbiasedAsABool) {
  std::vector<Tensor> out = run({twoRows()}, [](const Views& v) {
    return Views{variance(v[0], {0, 1}, true), variance(v[0], {}, 1), variance(v[0], {}, false, false)};
  });
  EXPECT_EQ(out[0].item(), out[1].item());
  EXPECT_NEAR(out[0].item() * 7, out[2].item() * 8, 1e-3);
}

TEST(Statistics, OverAnOuterDimAndOfOtherTypes) {
  Tensor x = doubles({1, 5, 2, 9, 6, 1}, {3, 2});
  expectNear(run1({x}, [](const Views& v) { return variance(v[0], {0}, 1); }),
             {squaresOf({1, 2, 6}) / 2, squaresOf({5, 9, 1}) / 2}, 1e-12);
  for (DataType type : {DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32, DataType::Float}) {
    Tensor got = run1({x.to(type)}, [](const Views& v) { return variance(v[0], {0}, 1); });
    EXPECT_EQ(got.dtype(), DataType::Float);
    expectNear(got, {squaresOf({1, 2, 6}) / 2, squaresOf({5, 9, 1}) / 2}, 1e-5);
  }
}

TEST(Statistics, OfFewOrNoElements) {
  Tensor one = doubles({3, 4}, {2, 1});
  for (double v : run1({one}, [](const Views& v) { return variance(v[0], {1}, 1); }).toVector()) {
    EXPECT_TRUE(std::isnan(v));
  }
  expectNear(run1({one}, [](const Views& v) { return variance(v[0], {1}, 0); }), {0, 0}, 0);
  for (double v : run1({doubles({}, {2, 0})}, [](const Views& v) { return variance(v[0], {1}, 0); }).toVector()) {
    EXPECT_TRUE(std::isnan(v));
  }
  EXPECT_EQ(sizesOf(run1({doubles({}, {0, 3})}, [](const Views& v) { return variance(v[0], {1}, 0); })),
            (std::vector<int64_t>{0}));
  EXPECT_EQ(run1({doubles({7}, {})}, [](const Views& v) { return variance(v[0], {}, 0); }).item(), 0);
}

TEST(Statistics, WelfordOfTwoParts) {
  Row all = {1, 4, -2, 8, 0.5, 3, 9};
  std::vector<Tensor> out = run({doubles({1, 4, -2}, {1, 3}), doubles({8, 0.5, 3, 9}, {1, 4})}, [](const Views& v) {
    WelfordResult first = Welford(v[0], {1});
    WelfordResult both = Welford(v[1], {1}, first.avg, first.var_sum, 3);
    return Views{first.n, both.n, both.avg, both.var_sum};
  });
  EXPECT_EQ(out[0].dtype(), DataType::Int);
  EXPECT_EQ(out[0].toVector(), (Row{3}));
  EXPECT_EQ(out[1].toVector(), (Row{7}));
  expectNear(out[2], {average(all)}, 1e-14);
  expectNear(out[3], {squaresOf(all)}, 1e-12);
}

TEST(ArgExtreme, FirstOfEqualOnesAndFirstNan) {
  Tensor x = doubles({1, 3, 3, 0, kNan, 5, kNan, 9, -kInf, -kInf, -kInf, -kInf}, {3, 4});
  EXPECT_EQ(run1({x}, [](const Views& v) { return argmax(v[0], 1); }).toVector(), (Row{1, 0, 0}));
  EXPECT_EQ(run1({x}, [](const Views& v) { return argmin(v[0], -1); }).toVector(), (Row{3, 0, 0}));
  EXPECT_EQ(run1({x}, [](const Views& v) { return argmax(v[0], 0); }).toVector(), (Row{1, 1, 1, 1}));
  EXPECT_EQ(run1({x}, [](const Views& v) { return argmin(v[0], 0); }).toVector(), (Row{1, 2, 1, 2}));
  EXPECT_EQ(run1({x}, [](const Views& v) { return argmax(v[0]); }).item(), 4);
  Tensor kept = run1({x}, [](const Views& v) { return argmax(v[0], 0, true); });
  EXPECT_EQ(sizesOf(kept), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(kept.dtype(), DataType::Int);
  EXPECT_EQ(sizesOf(run1({x}, [](const Views& v) { return argmin(v[0], std::nullopt, true); })),
            (std::vector<int64_t>{1, 1}));
}

TEST(ArgExtreme, TypesAndSmallDims) {
  Tensor x = doubles({2, 7, 7, 0, 0, 5}, {2, 3});
  for (DataType type : {DataType::Half, DataType::BFloat16, DataType::Int, DataType::Int32, DataType::Float}) {
    EXPECT_EQ(run1({x.to(type)}, [](const Views& v) { return argmax(v[0], 1); }).toVector(), (Row{1, 2}));
    EXPECT_EQ(run1({x.to(type)}, [](const Views& v) { return argmin(v[0]); }).item(), 3);
  }
  EXPECT_EQ(run1({x.to(DataType::Bool)}, [](const Views& v) { return argmin(v[0], 1); }).toVector(), (Row{0, 0}));
  EXPECT_EQ(run1({doubles({4, 5}, {2, 1})}, [](const Views& v) { return argmax(v[0], 1); }).toVector(), (Row{0, 0}));
  EXPECT_EQ(run1({doubles({4}, {})}, [](const Views& v) { return argmax(v[0]); }).item(), 0);
  EXPECT_EQ(sizesOf(run1({doubles({}, {0, 3})}, [](const Views& v) { return argmax(v[0], 1); })),
            (std::vector<int64_t>{0}));
}

}  // namespace
}  // namespace meshfuse
