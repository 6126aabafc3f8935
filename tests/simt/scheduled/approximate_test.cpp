// Kernels use approximate instructions, more of them if their results have 16 bits. Under the emulator each of these errs by as much as its documentation
// allows, and the results must still be within the bounds of the interpreter, for every operand of 16 bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "ops/activation.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "simt/scheduled/fusions.h"
#include "tile/call.h"

namespace meshfuse::simt {
namespace {

using Tensors = std::vector<TensorView*>;

// Every pattern of 16 bits once, as [256, 256]; the pattern of element i is i * stride.
Tensor everyValue(DataType type, uint32_t stride = 1) {
  Tensor t = Tensor::empty({256, 256}, type);
  for (uint32_t i = 0; i < 65536; i++) {
    const auto bits = static_cast<uint16_t>(i * stride);
    std::memcpy(static_cast<char*>(t.data()) + 2 * i, &bits, sizeof bits);
  }
  return t;
}

class ApproximateKernel : public testing::TestWithParam<DataType> {
 protected:
  // The first input has every value; another one has them in another order.
  void add(int64_t inputs, const ScheduledBatch::Build& build) {
    const DataType type = GetParam();
    batch_.add(
        std::vector<std::vector<int64_t>>(inputs, {256, 256}), [&](const Tensors& t) { return castOp(type, build(t)); },
        type);
    batch_.cases.back().inputs[0] = everyValue(type);
    if (inputs > 1) {
      batch_.cases.back().inputs[1] = everyValue(type, 40503);
    }
  }
  void expectRight() {
    for (const ScheduledVerdict& v : runScheduled(batch_.cases)) {
      EXPECT_TRUE(v.right()) << v.describe();
    }
  }

 private:
  ScheduledBatch batch_;
};

INSTANTIATE_TEST_SUITE_P(Type, ApproximateKernel, testing::Values(DataType::BFloat16, DataType::Half),
                         [](const auto& p) { return std::string(name(p.param)); });

TEST_P(ApproximateKernel, FunctionsAreWithinTheirBounds) {
  add(1, [](const Tensors& t) { return exp(t[0]); });
  add(1, [](const Tensors& t) { return tanh(t[0]); });
  add(1, [](const Tensors& t) { return sigmoid(t[0]); });
  add(1, [](const Tensors& t) { return reciprocal(t[0]); });
  add(1, [](const Tensors& t) { return rsqrt(t[0]); });
  add(1, [](const Tensors& t) { return tanh_gelu(t[0]); });
  add(2, [](const Tensors& t) { return div(t[0], t[1]); });
  add(2, [](const Tensors& t) { return tanh_gelu_backward(t[1], t[0]); });
  expectRight();
}

// A row is divided by one number: by its inverse.
TEST_P(ApproximateKernel, DivisionsByTheInverseAreWithinTheirBounds) {
  add(1, [](const Tensors& t) { return div(t[0], max(t[0], {1}, true)); });
  add(1, [](const Tensors& t) { return softmax(t[0], 1); });
  add(1, [](const Tensors& t) { return softmax(mul(sin(t[0]), 20.0), 1); });
  expectRight();
}

// Every 4099th pattern of a float, as [1024, 1024]: all exponents, subnormal numbers, infinities and NaNs.
Tensor manyFloats(uint32_t first) {
  Tensor t = Tensor::empty({1024, 1024}, DataType::Float);
  for (uint32_t i = 0; i < 1U << 20; i++) {
    const uint32_t bits = first + i * 4099;
    std::memcpy(static_cast<char*>(t.data()) + 4 * i, &bits, sizeof bits);
  }
  return t;
}

TEST(ApproximateFloat, FunctionsAreWithinTheirBounds) {
  ScheduledBatch batch;
  const auto add = [&](const ScheduledBatch::Build& build) {
    batch.add({{1024, 1024}}, build);
    batch.cases.back().inputs[0] = manyFloats(17);
  };
  add([](const Tensors& t) { return exp(t[0]); });
  add([](const Tensors& t) { return sigmoid(t[0]); });
  add([](const Tensors& t) { return tanh(t[0]); });
  add([](const Tensors& t) { return tanh_gelu(t[0]); });
  add([](const Tensors& t) { return silu(t[0]); });
  for (const ScheduledVerdict& v : runScheduled(batch.cases)) {
    EXPECT_TRUE(v.right()) << v.describe();
  }
}

// Each row has one divisor: every size, and those at the ends of the range.
TEST(ApproximateFloat, DivisionsByRowsAreWithinTheirBounds) {
  ScheduledBatch batch;
  batch.add({{1024, 1024}, {1024, 1}}, [](const Tensors& t) { return div(t[0], t[1]); });
  batch.cases.back().inputs[0] = manyFloats(17);
  Tensor divisors = Tensor::empty({1024, 1}, DataType::Float);
  for (uint32_t i = 0; i < 1024; i++) {
    const uint32_t bits = i % 4 == 0 ? i / 4 << 23 : i * 4194301;  // powers of two, zeros, infinities; any
    std::memcpy(static_cast<char*>(divisors.data()) + 4 * i, &bits, sizeof bits);
  }
  batch.cases.back().inputs[1] = divisors;
  batch.add({{64, 1000}}, [](const Tensors& t) { return div(exp(t[0]), sum(exp(t[0]), {1}, true)); });
  for (const ScheduledVerdict& v : runScheduled(batch.cases)) {
    EXPECT_TRUE(v.right()) << v.describe();
    EXPECT_NE(v.source.text.find("quotient("), std::string::npos);
  }
}

// Zeros have the sign of a true division, and quotients below the largest number stay finite.
TEST(ApproximateFloat, DivisionsByRowsHaveTheSignsAndInfinitiesOfDivisions) {
  ScheduledBatch batch;
  const auto add = [&](float dividend, const std::array<float, 4>& divisors, const ScheduledBatch::Build& build) {
    batch.add({{4, 64}, {4, 1}}, build);
    const std::vector<Argument>& inputs = batch.cases.back().inputs;
    std::fill_n(std::get<Tensor>(inputs[0]).data_as<float>(), 256, dividend);
    std::ranges::copy(divisors, std::get<Tensor>(inputs[1]).data_as<float>());
  };
  for (float zero : {0.f, -0.f}) {
    add(zero, {5.f, -5.f, 1e-35f, -1e35f}, [](const Tensors& t) { return signbit(div(t[0], t[1])); });
  }
  for (float sign : {1.f, -1.f}) {
    add(sign * 0x1.f1cd7p+127f, {0x1.f1cd72p-1f, 1.f, -0x1.f1cd72p-1f, 0.5f},
        [](const Tensors& t) { return isfinite(div(t[0], t[1])); });
  }
  for (const ScheduledVerdict& v : runScheduled(batch.cases)) {
    EXPECT_TRUE(v.right()) << v.describe();
    EXPECT_NE(v.source.text.find("quotient("), std::string::npos);
  }
}

std::vector<double> softmaxOf(uint64_t seed) {
  const tile::Example example = tile::softmaxProgram(tile::Target::Gpu, DataType::Half, 64, 1024);
  tile::Call call(example);
  EXPECT_EQ(run({kernelOf(example.program), call.slots(), seed, false}).faultCount, 0);
  return call.values(static_cast<int>(example.program.tensors.size()) - 1);
}

TEST(ApproximateInstruction, ErrsByTheSeedOfTheLaunch) {
  EXPECT_EQ(softmaxOf(1), softmaxOf(1));
  EXPECT_NE(softmaxOf(1), softmaxOf(2));
}

}  // namespace
}  // namespace meshfuse::simt
