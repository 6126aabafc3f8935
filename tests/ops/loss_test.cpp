// Cross entropy against its definition in Double, and its gradient against differences.
#include "ops/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/built.h"

namespace meshfuse {
namespace {

// Of logits [rows, classes, columns]; each target's loss.
Row losses(const Row& x, const Row& target, int64_t classes, int64_t columns, const CrossEntropyOptions& options) {
  Row all;
  for (int64_t k = 0; k < std::ssize(target); k++) {
    const auto logit = [&](int64_t c) { return x[(k / columns * classes + c) * columns + k % columns]; };
    double sum = 0;
    for (int64_t c = 0; c < classes; c++) {
      sum += std::exp(logit(c));
    }
    double shared = 0;
    for (int64_t c = 0; c < classes; c++) {
      shared += (std::log(sum) - logit(c)) / static_cast<double>(classes);
    }
    const bool counts = target[k] != static_cast<double>(options.ignore_index);
    const double own = counts ? std::log(sum) - logit(static_cast<int64_t>(target[k])) : 0;
    const double e = options.label_smoothing;
    all.push_back(counts ? (1 - e) * own + e * shared : 0);
  }
  return all;
}

Row reduced(const Row& each, const Row& target, const CrossEntropyOptions& options) {
  if (options.reduction == LossReduction::None) {
    return each;
  }
  double sum = 0;
  double counted = 0;
  for (size_t k = 0; k < each.size(); k++) {
    sum += each[k];
    counted += target[k] != static_cast<double>(options.ignore_index) ? 1 : 0;
  }
  return {options.reduction == LossReduction::Sum ? sum : sum / counted};
}

struct LossCase {
  std::vector<int64_t> sizes;
  int64_t columns;
  Row target;
};

const std::vector<LossCase> kLossCases = {
    {{4, 5}, 1, {4, 0, -100, 2}}, {{2, 3, 2, 2}, 4, {0, 1, 2, 2, 1, -100, 0, 1}}, {{6}, 1, {5}}};

TEST(Loss, CrossEntropyAndItsGradient) {
  for (const LossCase& c : kLossCases) {
    const int64_t classes = c.sizes.size() == 1 ? c.sizes[0] : c.sizes[1];
    std::vector<int64_t> targetSizes = c.sizes;
    targetSizes.erase(targetSizes.begin() + (c.sizes.size() == 1 ? 0 : 1));
    const Tensor x = randomTensor(c.sizes, DataType::Double, 1, -3, 3);
    const Tensor target = Tensor::of(c.target, targetSizes, DataType::Int32);
    for (const double smoothing : {0.0, 0.25, 1.0}) {
      for (const LossReduction reduction : {LossReduction::None, LossReduction::Mean, LossReduction::Sum}) {
        const CrossEntropyOptions options{.reduction = reduction, .label_smoothing = smoothing};
        const auto f = [&](const Row& logits) {
          return reduced(losses(logits, c.target, classes, c.columns, options), c.target, options);
        };
        const Tensor y = run1({x, target}, [&](const Views& v) { return cross_entropy(v[0], v[1], options); });
        expectNear(y, f(x.toVector()), 1e-12);
        const Tensor dy = randomTensor(sizesOf(y), DataType::Double, 2, -1, 1);
        const Tensor dx =
            run1({dy, x, target}, [&](const Views& v) { return cross_entropy_backward(v[0], v[1], v[2], options); });
        EXPECT_EQ(sizesOf(dx), c.sizes);
        expectNear(dx, slopes(f, x.toVector(), dy.toVector()), 1e-8);
      }
    }
  }
}

// torch.nn.functional.cross_entropy and its gradient, PyTorch 2.4.1
TEST(Loss, CrossEntropyIsPyTorchs) {
  Row logits;
  for (int64_t i = 0; i < 24; i++) {
    logits.push_back(static_cast<double>(i * 37 % 23 - 11) / 4);
  }
  const Tensor x = doubles(logits, {2, 3, 4});
  const Tensor target = Tensor::of({0, 1, 2, -7, 2, 2, 1, 0}, {2, 4}, DataType::Int);
  const auto loss = [&](LossReduction reduction, double smoothing) {
    return run1({x, target}, [&](const Views& v) {
      return cross_entropy(v[0], v[1], {.reduction = reduction, .ignore_index = -7, .label_smoothing = smoothing});
    });
  };
  expectNear(loss(LossReduction::None, 0),
             {5.0850972463643105, 3.6628648361805505, 3.3640955398199965, 0, 3.3640955398199965, 1.1628648361805505,
              0.11409553981999643, 2.6140955398199965},
             1e-14);
  expectNear(loss(LossReduction::None, 0.1),
             {4.8350972463643105, 3.4711981695138836, 3.2307622064866632, 0, 3.2307622064866632, 1.2211981695138838,
              0.3057622064866631, 2.5557622064866634},
             1e-14);
  expectNear(loss(LossReduction::Mean, 0), {2.766744154000771}, 1e-14);
  expectNear(loss(LossReduction::Mean, 0.1), {2.6929346301912473}, 1e-14);
  expectNear(loss(LossReduction::Sum, 0.1), {18.85054241133873}, 1e-13);
  const Tensor dx = run1({Tensor::of({1}, {}, DataType::Double), x, target}, [](const Views& v) {
    return cross_entropy_backward(v[0], v[1], v[2], {.ignore_index = -7, .label_smoothing = 0.1});
  });
  expectNear(dx, {-0.1324492925800762,   0.08977405547716569,    0.0057000946643425195,  0,
                  0.0060079163756661955, -0.12966777636345223,   0.12269134006523595,    0,
                  0.12644137620441004,   0.03989372088628658,    -0.12839143472957845,   0,
                  0.0057000946643425195, 0.08977405547716567,    0.005700094664342521,   -0.12287133390708607,
                  0.12269134006523595,   -0.0010963477920236362, -0.005880088506192622,  0.12269134006523598,
                  -0.12839143472957845,  -0.08867770768514202,   0.00017999384185014153, 0.00017999384185014153},
             1e-15);
}

TEST(Loss, CrossEntropyIsExactForLargeLogits) {
  const Tensor x = Tensor::of({3e4, 3e4, -3e4, 0, 1, 2}, {2, 3}, DataType::Float);
  const Tensor target = Tensor::of({1, 2}, {2}, DataType::Int);
  const Tensor y =
      run1({x, target}, [](const Views& v) { return cross_entropy(v[0], v[1], {.reduction = LossReduction::None}); });
  expectNear(y, {std::log(2), std::log(std::exp(-2) + std::exp(-1) + 1)}, 1e-6);
}

TEST(Loss, CrossEntropyOfIgnoredTargets) {
  const Tensor x = randomTensor({2, 3}, DataType::Half, 1);
  const Tensor none = Tensor::of({-1, -1}, {2}, DataType::Int);
  const Tensor mean = run1({x, none}, [](const Views& v) { return cross_entropy(v[0], v[1], {.ignore_index = -1}); });
  EXPECT_TRUE(std::isnan(mean.item()));
  EXPECT_EQ(mean.dtype(), DataType::Float);
  EXPECT_EQ(run1({x, none},
                 [](const Views& v) {
                   return cross_entropy(v[0], v[1], {.reduction = LossReduction::Sum, .ignore_index = -1});
                 })
                .item(),
            0);
  // a class may be the one that is ignored
  EXPECT_EQ(run1({x, Tensor::of({2, 2}, {2}, DataType::Int)},
                 [](const Views& v) {
                   return cross_entropy(v[0], v[1], {.reduction = LossReduction::Sum, .ignore_index = 2});
                 })
                .item(),
            0);
}

TEST(Loss, CrossEntropyRefuses) {
  const Tensor x = counting({2, 3});
  const Tensor target = Tensor::of({0, 1}, {2}, DataType::Int);
  const auto loss = [&](const Tensor& a, const Tensor& b, const CrossEntropyOptions& options = {}) {
    return [=] { (void)run1({a, b}, [&](const Views& v) { return cross_entropy(v[0], v[1], options); }); };
  };
  EXPECT_NO_THROW(loss(x, target)());
  EXPECT_THROW(loss(x, Tensor::of({0, 3}, {2}, DataType::Int))(), UserError);
  EXPECT_THROW(loss(x, Tensor::of({0, -1}, {2}, DataType::Int))(), UserError);
  EXPECT_THROW(loss(x, counting({2}))(), UserError);
  EXPECT_THROW(loss(x, Tensor::of({0, 1, 2}, {3}, DataType::Int))(), UserError);
  EXPECT_THROW(loss(counting({}), Tensor::of({0}, {}, DataType::Int))(), UserError);
  EXPECT_THROW(loss(x, target, {.label_smoothing = 1.5})(), UserError);
}

}  // namespace
}  // namespace meshfuse
