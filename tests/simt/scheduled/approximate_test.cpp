// Kernels whose results have 16 bits use approximate instructions. Under the emulator each of these errs by as much as its documentation
// allows, and the results must still be within the bounds of the interpreter, for every operand of 16 bits.
#include <gtest/gtest.h>

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
