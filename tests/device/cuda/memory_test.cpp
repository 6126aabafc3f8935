// Tensors in the memory of a GPU, or of the simulated one, that other libraries give and take.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/open.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "stress/checked_cache.h"
#include "tensor/dlpack.h"

namespace meshfuse {
namespace {

class GpuMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (const Gpus gpus = gpusOfThisMachine(); gpus.count == 0) {
      GTEST_SKIP() << "no GPU: " << gpus.missing;
    }
  }
  static DeviceId gpu() { return DeviceId::cuda(0); }
};

TEST_F(GpuMemory, GoesThroughDlpackAndBack) {
  const Tensor host = random({3, 4}, 1);
  Tensor t = host.to(gpu());
  const void* const address = t.data();
  dlpack::ManagedTensor* const handle = toDlpack(t.transpose(0, 1));
  EXPECT_EQ(handle->tensor.device.type, 2);
  EXPECT_EQ(handle->tensor.device.id, 0);
  t = Tensor();  // the handle keeps the memory
  Tensor back = fromDlpack(handle);
  EXPECT_EQ(back.device(), gpu());
  EXPECT_EQ(back.data(), address);
  EXPECT_EQ(back.toVector(), host.transpose(0, 1).toVector());

  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = stridedInput(*fusion, {4, 3});
    fusion->addOutput(neg(x));
  }
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
  const Tensor result = cache.runFusionWithInputs({back})[0];
  back = Tensor();
  EXPECT_EQ(result.at({3, 2}), -host.at({2, 3}));
}

TEST_F(GpuMemory, IsNotThatOfTheHost) {
  std::vector<float> values(12);
  EXPECT_NE(errorOf([&] {
              (void)Tensor::wrap(values.data(), {12}, {1}, DataType::Float, nullptr, gpu());
            }).find("is not in the memory of a GPU; pass memory of cuda:0"),
            std::string::npos);
  const Tensor host = random({3, 4}, 1);
  dlpack::ManagedTensor* const handle = toDlpack(host);
  handle->tensor.device = {2, 0};
  EXPECT_TRUE(errorOf([&] { (void)fromDlpack(handle); }).starts_with("UserError: [cuda] the address"));
}

// A GPU refuses such accesses while a kernel runs, and then all that follows.
TEST_F(GpuMemory, IsAlignedToItsElements) {
  const Tensor owner = random({64}, 1).to(gpu());
  char* const memory = static_cast<char*>(owner.data());
  EXPECT_NE(errorOf([&] {
              (void)Tensor::wrap(memory + 2, {8}, {1}, DataType::Float, nullptr, gpu());
            }).find("is no multiple of the 4 bytes of a Float; copy the elements to memory that is aligned"),
            std::string::npos);
  dlpack::ManagedTensor* const handle = toDlpack(owner.slice(0, 0, 8));
  handle->tensor.byteOffset = 1;
  EXPECT_TRUE(errorOf([&] { (void)fromDlpack(handle); }).starts_with("UserError: [tensor] wrap: the address"));
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({60});
    fusion->addInput(x);
    fusion->addOutput(neg(x));
  }
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Always});
  for (const int64_t offset : {0, 1, 2, 3, 4}) {  // elements: 4, 8 and 16 bytes
    const Tensor x = Tensor::wrap(memory + 4 * offset, {60}, {1}, DataType::Float, nullptr, gpu());
    const Tensor y = cache.runFusionWithInputs({x})[0];
    EXPECT_EQ(y.at({59}), -x.at({59})) << offset;
  }
}

// The simulated GPU ends a program that reads bytes which nobody has written.
TEST_F(GpuMemory, TakesElementsOfATensorWithoutValues) {
  for (const DataType type : {DataType::Bool, DataType::BFloat16, DataType::Double}) {
    Tensor t = Tensor::empty({2, 3}, type, gpu());
    for (const int64_t i : {0, 1}) {
      for (const int64_t k : {0, 1, 2}) {
        t.transpose(0, 1).set(std::array{k, i}, i < k ? 1 : 0);
      }
    }
    EXPECT_EQ(t.toVector(), (std::vector<double>{0, 1, 1, 0, 0, 1}));
  }
}

// Also in a call whose plan is there, and which could replay.
TEST_F(GpuMemory, IsNotUsedAfterItsEnd) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({64});
    fusion->addInput(x);
    fusion->addOutput(neg(x));
  }
  FusionExecutorCache cache(std::move(fusion));
  Tensor owner = random({64}, 1).to(gpu());
  const Tensor x = Tensor::wrap(owner.data(), {64}, {1}, DataType::Float, nullptr, gpu());
  std::vector<Tensor> y = cache.runFusionWithInputs({x});
  for (int64_t call = 0; call < 2; call++) {
    cache.run(std::vector<Argument>{x}, y);
  }
  const std::vector<double> values = y[0].toVector();
  Tensor ownerOfResult = random({64}, 1).to(gpu());
  std::vector<Tensor> freed = {Tensor::wrap(ownerOfResult.data(), {64}, {1}, DataType::Float, nullptr, gpu())};
  cache.run(std::vector<Argument>{x}, freed);
  ownerOfResult = Tensor();
  EXPECT_TRUE(errorOf([&] {
                cache.run(std::vector<Argument>{x}, freed);
              }).starts_with("UserError: [run] the memory of output 0"));
  owner = Tensor();
  for (const std::string& error : {errorOf([&] { cache.run(std::vector<Argument>{x}, y); }),
                                   errorOf([&] { (void)cache.runFusionWithInputs({x}); })}) {
    EXPECT_TRUE(error.starts_with("UserError: [run] the memory of input 0")) << error;
    EXPECT_NE(error.find("has been freed"), std::string::npos) << error;
  }
  const Tensor next = random({64}, 1).to(gpu());
  EXPECT_EQ(cache.runFusionWithInputs({next})[0].toVector(), values);
}

TEST_F(GpuMemory, BelongsToOneGpu) {
  if (gpusOfThisMachine().count < 2) {
    GTEST_SKIP() << "needs two GPUs";
  }
  const Tensor t = random({4}, 1).to(gpu());
  EXPECT_NE(errorOf([&] {
              (void)Tensor::wrap(t.data(), {4}, {1}, DataType::Float, nullptr, DeviceId::cuda(1));
            }).find("is in the memory of cuda:0, expected cuda:1"),
            std::string::npos);
}

// All of it: a call allocates nothing beside its arguments, its results and the arena.
TEST_F(GpuMemory, OfACallIsWhatItsPlanSays) {
  const std::shared_ptr<Device> device = openDevice(gpu());
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({64, 128});
    TensorView* w = makeContigConcreteTensor({128, 256});
    fusion->addInput(x);
    fusion->addInput(w);
    fusion->addOutput(sum(softmax(matmul(softmax(x, 1), w), 1), {0}));
  }
  FusionExecutorCache cache(std::move(fusion), {.verify = Verify::Off});
  device->resetMost();
  const int64_t before = device->memoryUse()->now;
  const std::vector<Argument> inputs = {random({64, 128}, 1).to(gpu()), random({128, 256}, 2).to(gpu())};
  std::vector<Tensor> outputs = {Tensor::empty({256}, DataType::Float, gpu())};
  for (int64_t call = 0; call < 3; call++) {
    cache.run(inputs, outputs);
    EXPECT_GT(cache.hostProgram()->sizes().arenaBytes, 0);
    EXPECT_EQ(device->memoryUse()->most - before, cache.hostProgram()->sizes().peakBytes) << "call " << call;
  }
}

TEST_F(GpuMemory, HasASize) {
  const std::shared_ptr<Device> device = openDevice(gpu());
  const int64_t bytes = device->memoryBytes().value();
  EXPECT_GT(bytes, device->memoryUse()->now);
  EXPECT_THROW((void)device->allocate(bytes + 1), UserError);
}

}  // namespace
}  // namespace meshfuse
