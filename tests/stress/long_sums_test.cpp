// Sums of more terms than a float counts, 2^24, whatever dims they run along: held against sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "exec/fusion_executor_cache.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

constexpr int64_t kMany = 18'000'000;  // more than 2^24

std::vector<float> run(const std::function<TensorView*(TensorView*)>& build, const Tensor& x) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* in = makeContigTensor(std::ssize(x.sizes()));
    fusion->addInput(in);
    fusion->addOutput(build(in));
  }
  FusionExecutorCache cache(std::move(fusion));
  const Tensor result = cache.runFusionWithInputs({x})[0];
  const float* data = static_cast<const float*>(result.data());
  return {data, data + result.numel()};
}

void expectAll(const std::vector<float>& values, double expected, double relative) {
  for (size_t i : {size_t{0}, values.size() / 2, values.size() - 1}) {
    EXPECT_NEAR(values[i], expected, relative * std::abs(expected)) << "element " << i;
  }
}

TEST(LongSum, OfAllElements) {
  const int64_t n = 50'000'000;
  expectAll(run([](TensorView* x) { return sum(x, {0}); }, Tensor::full({n}, DataType::Float, 1)), n, 1e-6);
}

TEST(LongSum, OverRowsOfTwoColumns) {
  expectAll(run([](TensorView* x) { return sum(x, {0}); }, Tensor::full({kMany, 2}, DataType::Float, 1)), kMany, 1e-6);
}

TEST(LongSum, OverColumnsOfATranspose) {
  expectAll(run([](TensorView* x) { return sum(transpose(x), {1}); }, Tensor::full({kMany, 2}, DataType::Float, 1)),
            kMany, 1e-6);
}

TEST(LongSum, OverColumnsOfTwoRows) {
  expectAll(run([](TensorView* x) { return sum(x, {1}); }, Tensor::full({2, kMany}, DataType::Float, 1)), kMany, 1e-6);
}

TEST(LongSum, OverAMiddleDim) {
  expectAll(run([](TensorView* x) { return sum(x, {1}); }, Tensor::full({2, kMany, 1, 2}, DataType::Float, 1)), kMany,
            1e-6);
}

TEST(LongSum, OverBothSidesOfADim) {
  expectAll(run(
                [](TensorView* x) {
                  return sum(x, {0, 2});
                },
                Tensor::full({kMany / 2, 2, 2}, DataType::Float, 1)),
            kMany, 1e-6);
}

TEST(LongSum, OfStridedElements) {
  const Tensor x = Tensor::full({kMany, 3}, DataType::Float, 1);
  expectAll(run([](TensorView* t) { return sum(t, {0, 1}); }, x.slice(1, 0, 2)), 2 * kMany, 1e-6);
}

TEST(LongSum, OfProductsThatAreMadeOnTheWay) {
  expectAll(run([](TensorView* x) { return mean(mul(x, x), {0}); }, Tensor::full({kMany, 2}, DataType::Float, 0.5)),
            0.25, 1e-6);
}

TEST(LongSum, DenominatorsOfSoftmaxes) {
  expectAll(run([](TensorView* x) { return softmax(x, 0); }, Tensor::full({kMany, 2}, DataType::Float, 1)), 1.0 / kMany,
            1e-5);
  expectAll(run([](TensorView* x) { return softmax(x, 1); }, Tensor::full({2, kMany}, DataType::Float, 1)), 1.0 / kMany,
            1e-5);
}

TEST(LongSum, OfRandomElementsIsAsGoodAsInDouble) {
  const Tensor x = randomTensor({4'000'000, 3}, DataType::Float, 1, 0, 1);
  const float* data = static_cast<const float*>(x.data());
  std::vector<double> expected(3, 0);
  for (int64_t i = 0; i < x.numel(); i++) {
    expected[i % 3] += data[i];
  }
  const std::vector<float> sums = run([](TensorView* t) { return sum(t, {0}); }, x);
  for (size_t k = 0; k < 3; k++) {
    EXPECT_NEAR(sums[k], expected[k], 1e-6 * expected[k]);
  }
}

}  // namespace

}  // namespace meshfuse
