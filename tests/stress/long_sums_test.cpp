// Sums of more terms than a float counts, 2^24, whatever dims they run along: held against sums in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>

#include "exec/fusion_executor_cache.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {

namespace {

constexpr int64_t kMany = 18'000'000;  // more than 2^24

std::vector<float> run(const std::function<TensorView*(TensorView*)>& build, const Tensor& x, size_t output = 0) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* in = makeContigTensor(std::ssize(x.sizes()));
    fusion->addInput(in);
    fusion->addOutput(build(in));
  }
  FusionExecutorCache cache(std::move(fusion));
  const Tensor result = cache.runFusionWithInputs({x})[output];
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

// As NumPy adds up a contiguous line: halves, down to blocks of at most 128 elements with eight sums beside each other.
float pairwiseSum(std::span<const float> x) {
  if (x.size() > 128) {
    const size_t half = x.size() / 2 - x.size() / 2 % 8;
    return pairwiseSum(x.first(half)) + pairwiseSum(x.subspan(half));
  }
  std::array<float, 8> sums{};
  for (size_t i = 0; i < x.size(); i++) {
    sums[i % 8] += x[i];
  }
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// A tensor [outer, k, inner] with the reduced dims; its lines are the elements of each sum.
struct Direction {
  const char* name;
  std::vector<int64_t> sizes;
  std::vector<int64_t> dims;
  int64_t tensors = 1;   // enough for 64 sums in all
  bool usesSum = false;  // along the reduced dims, in the same kernel
};

std::vector<std::vector<float>> linesOf(const Tensor& x, const std::vector<int64_t>& dims) {
  std::array<int64_t, 3> step{};  // in lines, along each dim
  int64_t count = 1;
  for (int64_t d = 2; d >= 0; d--) {
    if (std::ranges::find(dims, d) == dims.end()) {
      step[d] = count;
      count *= x.size(d);
    }
  }
  std::vector<std::vector<float>> lines(count);
  const float* next = static_cast<const float*>(x.data());
  for (int64_t i = 0; i < x.size(0); i++) {
    for (int64_t j = 0; j < x.size(1); j++) {
      for (int64_t k = 0; k < x.size(2); k++) {
        lines[i * step[0] + j * step[1] + k * step[2]].push_back(*next++);
      }
    }
  }
  return lines;
}

class SumError : public testing::TestWithParam<Direction> {};

// The root mean square of the errors, relative to that of pairwise sums.
TEST_P(SumError, IsThatOfPairwiseSums) {
  const Direction& d = GetParam();
  for (const bool ofOneSign : {true, false}) {
    double ours = 0;
    double pairwise = 0;
    for (int64_t t = 0; t < d.tensors; t++) {
      const Tensor x = randomTensor(d.sizes, DataType::Float, static_cast<uint64_t>(t + 1), ofOneSign ? 0 : -1, 1);
      const std::vector<float> sums = run(
          [&](TensorView* in) {
            TensorView* result = sum(in, d.dims, d.usesSum);
            if (d.usesSum) {
              in->fusion().addOutput(mul(in, result));
            }
            return result;
          },
          x, d.usesSum ? 1 : 0);
      const std::vector<std::vector<float>> lines = linesOf(x, d.dims);
      ASSERT_EQ(sums.size(), lines.size());
      for (size_t i = 0; i < lines.size(); i++) {
        const double exact = std::accumulate(lines[i].begin(), lines[i].end(), 0.0);
        ours += std::pow(sums[i] - exact, 2);
        pairwise += std::pow(pairwiseSum(lines[i]) - exact, 2);
      }
    }
    const double ratio = std::sqrt(ours / pairwise);
    RecordProperty(ofOneSign ? "one_sign" : "both_signs", std::to_string(ratio));
    EXPECT_LE(ratio, 1.5) << (ofOneSign ? "elements of one sign" : "elements of both signs");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Directions, SumError,
    testing::Values(Direction{"outer", {1, 8192, 1024}, {1}}, Direction{"outer_wide", {1, 8192, 1500}, {1}},
                    Direction{"outer_narrow", {1, 60000, 16}, {1}, 40}, Direction{"outer_short", {1, 300, 400}, {1}},
                    Direction{"outer_used", {1, 8192, 128}, {1}, 1, true}, Direction{"middle", {4, 8192, 100}, {1}},
                    Direction{"first_two", {16, 512, 200}, {0, 1}},
                    Direction{"outer_and_inner", {16, 64, 512}, {0, 2}, 2}, Direction{"inner", {1, 128, 8192}, {2}},
                    Direction{"inner_long", {1, 64, 100000}, {2}}, Direction{"inner_parts", {1, 8, 131072}, {2}, 16},
                    Direction{"inner_used", {1, 256, 8192}, {2}, 1, true},
                    Direction{"all", {64, 64, 64}, {0, 1, 2}, 64}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace

}  // namespace meshfuse
