#include "interpret/bounds.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/text.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

constexpr double kUlp = 0x1p-23;  // of a Float at 1

BoundedTensor bounded(const std::vector<Tensor>& tensors,
                      const std::function<TensorView*(const std::vector<TensorView*>&)>& define,
                      const BoundOptions& options = {}) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  std::vector<TensorView*> views;
  std::vector<Argument> arguments;
  for (const Tensor& t : tensors) {
    views.push_back(makeConcreteTensor({t.sizes().begin(), t.sizes().end()}, t.dtype()));
    fusion.addInput(views.back());
    arguments.emplace_back(t);
  }
  fusion.addOutput(define(views));
  return interpretWithBounds(fusion, arguments, options).at(0);
}

TEST(Bounds, ProductsThatLeaveTheRangeOnTheWayMayBeAnything) {
  auto product = [](const std::vector<TensorView*>& t) { return prod(t[0], {0}); };
  BoundedTensor up = bounded({Tensor::of({1e30, 1e30, 0, 2}, {4})}, product);
  EXPECT_EQ(up.value.toVector()[0], 0);
  EXPECT_EQ(compare(Tensor::of({NAN}, {}), up), std::nullopt) << "1e30 * 1e30 is infinite, times 0 no number";
  BoundedTensor down = bounded({Tensor::of({1e-30, 1e-30, 1e30, 1e30}, {4})}, product);
  EXPECT_EQ(compare(Tensor::of({0}, {}), down), std::nullopt);
  BoundedTensor zero = bounded({Tensor::of({1e30, 0, 3}, {3})}, product);
  EXPECT_NE(compare(Tensor::of({NAN}, {}), zero), std::nullopt);
  EXPECT_NE(compare(Tensor::of({1}, {}), zero), std::nullopt);
  BoundedTensor plain = bounded({Tensor::of({0.5, 3, 4}, {3})}, product);
  EXPECT_LT(plain.error.data_as<double>()[0], 1e-5);
}

TEST(Bounds, CopiesAndIntegersAreExact) {
  Tensor x = Tensor::of({1.1, 2.2}, {2});
  EXPECT_EQ(bounded({x},
                    [](auto& v) {
                      return permute(unsqueeze(v[0], 0), {1, 0});
                    })
                .error.toVector(),
            (std::vector<double>{0, 0}));
  EXPECT_EQ(bounded({x}, [](auto& v) { return maximum(neg(v[0]), 0); }).error.toVector(), (std::vector<double>{0, 0}));
  Tensor n = Tensor::of({1, 2}, {2}, DataType::Int);
  EXPECT_EQ(bounded({n}, [](auto& v) { return sum(mul(v[0], v[0]), {0}); }).error.item(), 0);
}

TEST(Bounds, HoldWhatFloatArithmeticGives) {
  // A chain in float, in another order than the reference's: its result must lie within the bound, and not far within.
  const int64_t n = 1000;
  Tensor x = randomTensor({n}, DataType::Float, 1, 0.5, 2);
  BoundedTensor b = bounded({x}, [](auto& v) { return sum(sqrt(div(exp(v[0]), add(v[0], 3.0))), {0}); });
  float total = 0;
  for (int64_t i = n; i-- > 0;) {
    float v = static_cast<float>(x.at({i}));
    total += std::sqrt(std::exp(v) / (v + 3.0f));
  }
  double distance = std::fabs(static_cast<double>(total) - b.value.item());
  EXPECT_LE(distance, b.error.item());
  EXPECT_LT(b.error.item(), 1e-3 * b.value.item());
  EXPECT_EQ(compare(Tensor::scalar(total), b), std::nullopt);
}

TEST(Bounds, GrowWithTheLength) {
  auto errorOf = [&](int64_t n) {
    return bounded({Tensor::full({n}, DataType::Float, 1)}, [](auto& v) { return sum(v[0], {0}); }).error.item() /
           static_cast<double>(n);
  };
  EXPECT_NEAR(errorOf(10), 11 * kUlp / 2, 1e-12);
  EXPECT_NEAR(errorOf(1000), 1001 * kUlp / 2, 1e-12);
}

TEST(Bounds, ADroppedTermIsSeen) {
  Tensor x = randomTensor({64}, DataType::Float, 5, 0.5, 1);
  BoundedTensor b = bounded({x}, [](auto& v) { return sum(v[0], {0}); });
  std::optional<std::string> difference = compare(Tensor::scalar(b.value.item() - x.at({63})), b);
  ASSERT_TRUE(difference.has_value());
  EXPECT_NE(difference->find("1 of 1 elements differ"), std::string::npos);
}

TEST(Bounds, CastsToShorterTypesAreExactWhereTheOperandIs) {
  Tensor x = Tensor::of({1.001, 2.003}, {2});
  EXPECT_EQ(bounded({x}, [](auto& v) { return castOp(DataType::Half, v[0]); }).error.toVector(),
            (std::vector<double>{0, 0}));
  // 1 + 2^-8 lies between two BFloat16 numbers: the smallest doubt decides
  Tensor half = Tensor::of({1 + 0x1p-8, 1.5}, {2});
  std::vector<double> e =
      bounded({half}, [](auto& v) { return castOp(DataType::BFloat16, mul(v[0], 1.0)); }).error.toVector();
  EXPECT_EQ(e, (std::vector<double>{0x1p-7, 0}));
}

TEST(Bounds, AZeroThatNothingRoundsIsExact) {
  Tensor x = Tensor::of({0, 1.1, 1e-40}, {3});
  EXPECT_EQ(bounded({x}, [](auto& v) { return floor(mul(v[0], 0.8)); }).uncertain, 0);
  EXPECT_EQ(bounded({x}, [](auto& v) { return sub(v[0], v[0]); }).error.toVector(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(bounded({x}, [](auto& v) { return div(mul(v[0], 0.0), 3.0); }).error.toVector(),
            (std::vector<double>{0, 0, 0}));
  // 0 of numbers with bounds: a bound remains
  EXPECT_GT(bounded({x}, [](auto& v) { return sub(exp(v[0]), exp(v[0])); }).error.toVector()[1], 0);
  EXPECT_GT(bounded({x}, [](auto& v) { return mul(sub(exp(v[0]), exp(v[0])), 2.0); }).error.toVector()[1], 0);
  // 1e-40 * 1e-40 is below the type's range
  EXPECT_GT(bounded({x}, [](auto& v) { return mul(v[0], v[0]); }).error.toVector()[2], 0);
}

TEST(Bounds, JumpsAreCounted) {
  Tensor x = Tensor::of({0.5, 1, 2.5, 3}, {4});
  BoundedTensor exact = bounded({x}, [](auto& v) { return floor(v[0]); });
  EXPECT_EQ(exact.uncertain, 0);
  EXPECT_EQ(exact.error.toVector(), (std::vector<double>{0, 0, 0, 0}));
  BoundedTensor computed = bounded({x}, [](auto& v) { return floor(mul(v[0], 1.0)); });
  EXPECT_EQ(computed.uncertain, 2);
  EXPECT_EQ(computed.error.toVector(), (std::vector<double>{0, 1, 0, 1}));
  BoundedTensor equal = bounded({x}, [](auto& v) { return eq(mul(v[0], 1.0), 2.5); });
  EXPECT_EQ(equal.uncertain, 1);
  std::optional<std::string> said = compare(computed.value, computed);
  ASSERT_TRUE(said.has_value());
  EXPECT_NE(said->find("2 of 4 elements lie within their bound of a discontinuity"), std::string::npos);
  EXPECT_EQ(compare(equal.value, equal), std::nullopt);
}

TEST(Bounds, SelectingByADoubtfulConditionCostsTheDistance) {
  Tensor x = Tensor::of({1, 5}, {2});
  BoundedTensor b = bounded({x}, [](auto& v) { return where(gt(mul(v[0], 1.0), 1.0), 100.0, 40.0); });
  EXPECT_EQ(b.error.toVector(), (std::vector<double>{60, 0}));
}

TEST(Bounds, NanAndInfinitiesAgreeWithThemselves) {
  const double inf = std::numeric_limits<double>::infinity();
  Tensor x = Tensor::of({inf, -inf, std::nan(""), 1}, {4});
  BoundedTensor b = bounded({x}, [](auto& v) { return mul(exp(v[0]), 2.0); });
  EXPECT_EQ(compare(b.value, b), std::nullopt);
  Tensor wrong = b.value.clone();
  wrong.set(std::vector<int64_t>{2}, 1);
  EXPECT_TRUE(compare(wrong, b).has_value());
  wrong = b.value.clone();
  wrong.set(std::vector<int64_t>{0}, -inf);
  EXPECT_TRUE(compare(wrong, b).has_value());
}

TEST(Bounds, PartsOfSixteenBitsCost) {
  Tensor x = Tensor::full({1, 64}, DataType::BFloat16, 1);
  auto errorOf = [&](int64_t partials) {
    return bounded({x}, [](auto& v) { return linear(v[0], v[0]); }, {.partials = partials}).error.item();
  };
  EXPECT_GT(errorOf(4), errorOf(1));
  EXPECT_LT(errorOf(1), 1);
  // 64 terms of 1: four parts and their sums are rounded by 2^-8 at most, five times with the last one
  const double five = 5 * 0x1p-8 / (1 - 5 * 0x1p-8);
  EXPECT_GE(errorOf(4), errorOf(1) + 64 * five);
  EXPECT_LE(errorOf(4), errorOf(1) + 66 * five);
}

// Each of two parts is rounded to 16 bits: 60000 + 60000 is infinite there, and then the sum is.
TEST(Bounds, PartsThatLeaveTheRangeMayBeAnything) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto half = [](double v) { return Tensor::full({}, DataType::Half, v); };
  const auto summed = [](const std::vector<double>& terms, int64_t partials) {
    Tensor x = Tensor::empty({std::ssize(terms)}, DataType::Half);
    for (int64_t k = 0; k < std::ssize(terms); k++) {
      x.set(std::vector<int64_t>{k}, terms[k]);
    }
    const std::unique_ptr<Fusion> fusion = parseFusion(fmt::format(
        "fusion {{\n  T0 = input() : Half[{0}]\n  T1 = reduce(T0, op=sum) : Half[r{{{0}}}]\n  output T1\n}}\n",
        terms.size()));
    return interpretWithBounds(*fusion, std::vector<Argument>{x}, {.partials = partials}).at(0);
  };
  const BoundedTensor finite = summed({60000, 60000, -60000, -59008}, 2);
  EXPECT_EQ(finite.value.item(), 992);
  EXPECT_EQ(compare(half(inf), finite), std::nullopt);
  EXPECT_EQ(compare(half(NAN), finite), std::nullopt);
  EXPECT_NE(compare(half(inf), summed({60000, 60000, -60000, -59000}, 1)), std::nullopt)
      << "one part is added in Float";
  EXPECT_NE(compare(half(inf), summed({60000, 4000, -60000, -4000}, 2)), std::nullopt) << "no part leaves the range";

  EXPECT_EQ(compare(half(NAN), summed({inf, 1, -60000, -59000}, 2)), std::nullopt);
  EXPECT_NE(compare(half(NAN), summed({inf, 60000, 60000, -59000}, 2)), std::nullopt) << "no part falls";
  EXPECT_NE(compare(half(1000), summed({inf, 60000, 60000, -59000}, 2)), std::nullopt);
  EXPECT_NE(compare(half(1000), summed({60000, 60000, 60000, 1}, 2)), std::nullopt) << "the whole sum is infinite";
  EXPECT_NE(compare(half(1000), summed({inf, -inf, 1, 1}, 2)), std::nullopt);
}

TEST(Bounds, PartsOfProductsThatLeaveTheRangeMayBeAnything) {
  const Tensor x = Tensor::full({1, 4}, DataType::Half, 300);
  Tensor w = Tensor::full({1, 4}, DataType::Half, 200);
  w.set(std::vector<int64_t>{0, 2}, -200);
  w.set(std::vector<int64_t>{0, 3}, -200);
  const auto product = [&](int64_t partials) {
    return bounded({x, w}, [](auto& v) { return linear(v[0], v[1]); }, {.partials = partials});
  };
  const Tensor infinite = Tensor::full({1, 1}, DataType::Half, std::numeric_limits<double>::infinity());
  EXPECT_EQ(compare(infinite, product(2)), std::nullopt);
  EXPECT_NE(compare(infinite, product(1)), std::nullopt);
}

// Two products of 1.5 units of the subnormal numbers of Half: each part is rounded to 2 units, the whole sum is 3 units.
TEST(Bounds, PartsOfProductsBelowTheNormalNumbersAreRoundedToTheirUnit) {
  const double unit = 0x1p-24;
  const Tensor x = Tensor::full({1, 2}, DataType::Half, 1.5 * 0x1p-12);
  const Tensor w = Tensor::full({1, 2}, DataType::Half, 0x1p-12);
  const auto product = [&](int64_t partials) {
    return bounded({x, w}, [](auto& v) { return linear(v[0], v[1]); }, {.partials = partials});
  };
  const auto units = [&](double n) { return Tensor::full({1, 1}, DataType::Half, n * unit); };
  EXPECT_EQ(product(2).value.item(), 3 * unit);
  EXPECT_EQ(compare(units(4), product(2)), std::nullopt);
  EXPECT_NE(compare(units(6), product(2)), std::nullopt);
  EXPECT_NE(compare(units(5), product(1)), std::nullopt);
  const Tensor zeros = Tensor::zeros({1, 2}, DataType::Half);
  EXPECT_LT(bounded({zeros, w}, [](auto& v) { return linear(v[0], v[1]); }, {.partials = 2}).error.item(), 0x1p-100);
}

TEST(Compare, SaysWhereAndWhat) {
  Tensor expected = Tensor::of({1, 2, 3, 4}, {2, 2});
  Tensor got = Tensor::of({1, 2, 7, 8}, {2, 2});
  std::optional<std::string> text = compare(got, {expected, {}, 0});
  ASSERT_TRUE(text.has_value());
  for (const char* phrase : {"2 of 4", "[1, 0]", "got 7", "expected 3"}) {
    EXPECT_NE(text->find(phrase), std::string::npos) << *text;
  }
  EXPECT_NE(compare(Tensor::of({1}, {1}), {expected, {}, 0})->find("sizes differ"), std::string::npos);
  EXPECT_NE(compare(expected.to(DataType::Int), {expected, {}, 0})->find("types differ"), std::string::npos);
  EXPECT_EQ(compare(Tensor::of({-0.0}, {1}), {Tensor::of({0}, {1}), {}, 0}), std::nullopt);
}

}  // namespace
}  // namespace meshfuse
