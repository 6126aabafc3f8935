// Results that wait for no reduction are stored by the sweep that reduces: inputs are read once.
#include <gtest/gtest.h>

#include "ops/activation.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "schedule/kernel_check.h"

namespace meshfuse {

namespace {

class FirstSweep : public ::testing::TestWithParam<tile::Target> {};

INSTANTIATE_TEST_SUITE_P(Device, FirstSweep, ::testing::Values(tile::Target::Cpu, tile::Target::Gpu),
                         [](const auto& p) { return p.param == tile::Target::Cpu ? "Cpu" : "Gpu"; });

// The sum of tanh(x) along `axis` and tanh(x) itself; with `centered` the latter less the former. Bytes read of x.
int64_t bytesRead(tile::Target target, std::vector<int64_t> shape, int64_t axis, bool centered) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  TensorView* x = makeContigConcreteTensor(shape);
  fusion.addInput(x);
  TensorView* y = tanh(x);
  TensorView* s = sum(y, {axis});
  fusion.addOutput(centered ? sub(y, unsqueeze(s, axis)) : y);
  fusion.addOutput(s);
  DeviceInfo device = target == tile::Target::Cpu ? DeviceInfo{} : DeviceInfo::hopper();
  KernelCheck c = checkKernel(fusion, device, {randomTensor(shape, DataType::Float, 1, -2, 2)});
  EXPECT_EQ(c.difference, "");
  return c.traffic.tensors[0].readBytes;
}

TEST_P(FirstSweep, StoresWhatWaitsForNoReduction) {
  for (int64_t n : {40, 1000, 5000}) {
    EXPECT_EQ(bytesRead(GetParam(), {12, n}, 1, false), 12 * n * 4) << "inner " << n;
    EXPECT_EQ(bytesRead(GetParam(), {30, n}, 0, false), 30 * n * 4) << "outer " << n;
  }
}

TEST_P(FirstSweep, LeavesOthersToTheLast) { EXPECT_EQ(bytesRead(GetParam(), {30, 1000}, 0, true), 2 * 30 * 1000 * 4); }

}  // namespace

}  // namespace meshfuse
