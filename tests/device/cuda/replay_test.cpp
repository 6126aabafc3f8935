// Pieces of programs that a GPU, or the simulated one, records as graphs and replays.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "base/refused_index.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/counting_device.h"
#include "host/executor.h"
#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

// A program on a GPU, run by a binding whose calls of the queue are counted, and on the CPU.
class GpuReplay : public testing::Test {
 protected:
  void SetUp() override {
    const CudaCapabilities c = cudaCapabilities();
    if (!c.driver || !c.nvrtc) {
      GTEST_SKIP() << "no GPU: " << c.driverNote << "; " << c.nvrtcNote;
    }
  }

  void make(const std::function<void(Fusion&)>& define, const std::vector<Argument>& example) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      define(*fusion);
    }
    cache_ = std::make_unique<FusionExecutorCache>(std::move(fusion), ExecutorOptions{.verify = Verify::Always});
    (void)cache_->runFusionWithInputs(example);
    HostProgram host = *cache_->hostProgram();
    steps_ = std::ssize(host.steps);
    host.device = countingDevice(host.device, calls_);
    binding_ = std::make_unique<Binding>(std::make_shared<const HostProgram>(std::move(host)), defaultWorld());
  }

  // Calls the binding, compares its results with those of single steps that are verified, and returns what the queue was asked.
  QueueCalls run(const std::vector<Argument>& inputs, std::vector<Tensor>& outputs) {
    calls_ = {};
    binding_->run(defaultWorld(), inputs, outputs);
    const std::vector<Tensor> expected = cache_->runFusionWithInputs(inputs);
    for (const int64_t i : indices(outputs)) {
      EXPECT_EQ(outputs[i].toVector(), expected[i].toVector());
    }
    return calls_;
  }

  int64_t steps_ = 0;
  QueueCalls calls_;
  std::unique_ptr<FusionExecutorCache> cache_;
  std::unique_ptr<Binding> binding_;
};

Tensor onGpu(std::vector<int64_t> sizes, uint64_t seed) { return random(std::move(sizes), seed).to(DeviceId::cuda(0)); }

// Two kernels, because each row of the second needs all rows of the first.
TensorView* centered(TensorView* x) {
  TensorView* y = sub(x, broadcast(mean(x, {0}), {true, false}));
  return div(y, broadcast(sum(y, {1}), {false, true}));
}

void center(Fusion& fusion) {
  TensorView* x = makeContigTensor(2);
  fusion.addInput(x);
  fusion.addOutput(centered(x));
}

TEST_F(GpuReplay, GivesLaunchesNewAddresses) {
  make(center, {onGpu({4, 8}, 0)});
  ASSERT_GE(steps_, 2);
  std::vector<std::vector<Tensor>> kept;  // so that every call has addresses of its own
  for (int call = 0; call < 5; call++) {
    kept.push_back({Tensor::empty({4, 8}, DataType::Float, DeviceId::cuda(0))});
    const QueueCalls calls = run({onGpu({4, 8}, call)}, kept.back());
    EXPECT_EQ(calls.captures, call == 1 ? 1 : 0);
    EXPECT_EQ(calls.replays, call == 0 ? 0 : 1);
    EXPECT_EQ(calls.single, call < 2 ? steps_ : 0);
  }
}

void mlp(Fusion& fusion) {
  TensorView* x = makeContigTensor(2);
  TensorView* w = makeContigTensor(2);
  fusion.addInput(x);
  fusion.addInput(w);
  fusion.addOutput(linear(exp(linear(x, w)), w));
}

// A product has the addresses with which it was captured.
TEST_F(GpuReplay, CapturesProductsAgainWhenTheirAddressesStay) {
  const Tensor w = onGpu({8, 8}, 100);
  Tensor x = onGpu({4, 8}, 0);
  std::vector<Tensor> out = {Tensor::empty({4, 8}, DataType::Float, DeviceId::cuda(0))};
  make(mlp, {x, w});
  ASSERT_EQ(steps_, 3);
  for (int round = 0; round < 2; round++) {
    for (int call = 0; call < 4; call++) {
      x.copyFrom(random({4, 8}, 10 * round + call));  // other numbers in the same memory
      const QueueCalls calls = run({x, w}, out);
      EXPECT_EQ(calls.captures, call == 1 ? 1 : 0);
      EXPECT_EQ(calls.replays, call == 0 ? 0 : 1);
    }
    x = onGpu({4, 8}, 50 + round);  // the old memory is freed
  }
}

void lookup(Fusion& fusion) {
  TensorView* index = makeContigTensor(1, DataType::Int);
  TensorView* table = makeContigTensor(2);
  fusion.addInput(index);
  fusion.addInput(table);
  fusion.addOutput(centered(embedding_fwd(index, table)));
}

TEST_F(GpuReplay, ChecksIndices) {
  const auto indexes = [](double middle) {
    return Tensor::of({0, middle, 7}, {3}, DataType::Int).to(DeviceId::cuda(0));
  };
  const Tensor table = onGpu({8, 4}, 1);
  std::vector<Tensor> out = {Tensor::empty({3, 4}, DataType::Float, DeviceId::cuda(0))};
  make(lookup, {indexes(1), table});
  ASSERT_GE(steps_, 2);
  for (int call = 0; call < 6; call++) {
    if (call % 2 == 0) {
      EXPECT_EQ(run({indexes(call), table}, out).replays, call == 0 ? 0 : 1);
      continue;
    }
    EXPECT_THROW(binding_->run(defaultWorld(), std::vector<Argument>{indexes(8), table}, out), RefusedIndexError);
  }
}

void twoLookups(Fusion& fusion) {
  for (const bool isFirst : {true, false}) {
    TensorView* index = makeContigTensor(1, DataType::Int);
    TensorView* table = makeContigTensor(2);
    fusion.addInput(index);
    fusion.addInput(table);
    TensorView* rows = embedding_fwd(index, table);
    fusion.addOutput(isFirst ? rows : centered(rows));
  }
}

TEST_F(GpuReplay, AFailureOfSeveralKernelsIsOneErrorOfOneCall) {
  const auto arguments = [table = onGpu({8, 4}, 1)](double index) -> std::vector<Argument> {
    return {Tensor::of({0, index}, {2}, DataType::Int).to(DeviceId::cuda(0)), table,
            Tensor::of({0, index, 7}, {3}, DataType::Int).to(DeviceId::cuda(0)), table};
  };
  std::vector<Tensor> out = {Tensor::empty({2, 4}, DataType::Float, DeviceId::cuda(0)),
                             Tensor::empty({3, 4}, DataType::Float, DeviceId::cuda(0))};
  make(twoLookups, arguments(1));
  ASSERT_GE(steps_, 3);
  for (int call = 0; call < 3; call++) {
    EXPECT_EQ(run(arguments(call), out).replays, call == 0 ? 0 : 1);
  }
  EXPECT_THROW(binding_->run(defaultWorld(), arguments(8), out), RefusedIndexError);
  EXPECT_EQ(run(arguments(5), out).replays, 1);
}

}  // namespace
}  // namespace meshfuse
