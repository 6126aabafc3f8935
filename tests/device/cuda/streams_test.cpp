// Calls and tensors that are ordered with the work of a stream of the caller, on a GPU or on the simulated one.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/refused_index.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/library.h"
#include "device/cuda/driver/streams.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "tensor/dlpack.h"

namespace meshfuse {
namespace {

constexpr int64_t kLength = 1000;
constexpr size_t kBytes = 4 * kLength;

// A stream of the caller, and work on it.
class GpuStreams : public testing::Test {
 protected:
  void SetUp() override {
    const CudaCapabilities c = cudaCapabilities();
    if (!c.driver || !c.nvrtc) {
      GTEST_SKIP() << "no GPU: " << c.driverNote << "; " << c.nvrtcNote;
    }
    context_ = std::make_unique<CudaContext>(0);
    const CurrentContext current(*context_);
    stream_ = std::make_unique<CudaStream>(*context_);
  }

  GpuStream stream() const { return {stream_->get()}; }
  // All floats get the bits 0x01010101 * byte.
  void fill(const Tensor& tensor, unsigned char byte) const {
    const CurrentContext current(*context_);
    succeed(loadedDriver().fillAsync(std::bit_cast<cuda::DevicePointer>(tensor.data()), byte, kBytes, stream_->get()),
            "cuMemsetD8Async", "test");
  }
  // The first element, after the work of the stream.
  float read(const Tensor& tensor) const {
    const CurrentContext current(*context_);
    std::vector<float> host(kLength);
    succeed(loadedDriver().copyToHostAsync(host.data(), std::bit_cast<cuda::DevicePointer>(tensor.data()), kBytes,
                                           stream_->get()),
            "cuMemcpyDtoHAsync", "test");
    stream_->synchronize("test");
    return host[0];
  }
  static float filled(unsigned char byte) { return std::bit_cast<float>(0x01010101U * byte); }

  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaStream> stream_;
};

Tensor onGpu() { return Tensor::empty({kLength}, DataType::Float, DeviceId::cuda(0)); }

std::unique_ptr<Fusion> twice() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigTensor(1);
  fusion->addInput(x);
  fusion->addOutput(add(x, x));
  return fusion;
}

TEST_F(GpuStreams, OrderCallsWithTheirWork) {
  FusionExecutorCache cache(twice());
  const Tensor x = onGpu();
  std::vector<Tensor> y = {onGpu()};
  for (const unsigned char byte : {1, 2, 3, 4, 5}) {
    fill(x, byte);
    cache.run(std::vector<Argument>{x}, y, stream());
    EXPECT_EQ(read(y[0]), 2 * filled(byte));
  }
  cache.wait();
}

// The result is computed in other memory and copied there.
TEST_F(GpuStreams, OrderCopiesOfResultsToo) {
  FusionExecutorCache cache(twice());
  const Tensor x = onGpu();
  std::vector<Tensor> y = {Tensor::empty({kLength + 1}, DataType::Float, DeviceId::cuda(0)).slice(0, 1, kLength + 1)};
  for (const unsigned char byte : {1, 2, 3}) {
    fill(x, byte);
    cache.run(std::vector<Argument>{x}, y, stream());
    EXPECT_EQ(read(y[0]), 2 * filled(byte));
  }
}

std::unique_ptr<Fusion> lookup() {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* index = makeContigTensor(1, DataType::Int);
  TensorView* table = makeContigTensor(2);
  fusion->addInput(index);
  fusion->addInput(table);
  fusion->addOutput(embedding_fwd(index, table));
  return fusion;
}

struct Lookup {
  explicit Lookup(int64_t rows = 3)
      : right({Tensor::of({0, 1, 7}, {3}, DataType::Int).to(DeviceId::cuda(0)), table}),
        wrong({Tensor::of({0, 8, 7}, {3}, DataType::Int).to(DeviceId::cuda(0)), table}),
        out({Tensor::empty({rows, 2}, DataType::Float, DeviceId::cuda(0))}) {}
  const Tensor table = random({8, 2}, 1).to(DeviceId::cuda(0));
  const std::vector<Argument> right;
  const std::vector<Argument> wrong;
  std::vector<Tensor> out;
};

void expectRefused(const std::function<void()>& call) {
  try {
    call();
    FAIL() << "no error";
  } catch (const RefusedIndexError& error) {
    EXPECT_NE(std::string(error.what()).find("embedding_fwd: index 8 is out of range for an extent of 8"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(GpuStreams, AFailureAfterTheCallIsThrownByTheNextWait) {
  FusionExecutorCache cache(lookup());
  Lookup l;
  cache.run(l.wrong, l.out, stream());
  expectRefused([&] { cache.wait(); });
  cache.run(l.right, l.out, stream());
  cache.wait();
}

TEST_F(GpuStreams, AFailureAfterTheCallIsThrownByTheNextCall) {
  FusionExecutorCache cache(lookup());
  Lookup l;
  cache.run(l.wrong, l.out, stream());
  const CurrentContext current(*context_);
  stream_->synchronize("test");
  expectRefused([&] { cache.run(l.right, l.out, stream()); });
  cache.run(l.right, l.out, stream());
  cache.wait();
}

// The inputs of the next call have the index too, at another place.
TEST_F(GpuStreams, AFailureOfAnEarlierCallGetsNoPositionInTheInputsOfTheNext) {
  FusionExecutorCache cache(lookup());
  Lookup l;
  cache.run(l.wrong, l.out, stream());
  const CurrentContext current(*context_);
  stream_->synchronize("test");
  const std::vector<Argument> next = {Tensor::of({8, 0, 0}, {3}, DataType::Int).to(DeviceId::cuda(0)), l.table};
  try {
    cache.run(next, l.out, stream());
    FAIL() << "no error";
  } catch (const RefusedIndexError& error) {
    EXPECT_STREQ(error.what(), "[run] embedding_fwd: index 8 is out of range for an extent of 8; give 0 <= index < 8");
  }
}

// The plan of the call is gone by then.
TEST_F(GpuStreams, AFailureOutlivesItsPlan) {
  FusionExecutorCache cache(lookup(), {.maxPlans = 1});
  Lookup l;
  cache.run(l.wrong, l.out, stream());
  for (const int64_t rows : {4, 5}) {
    const std::vector<Argument> other = {Tensor::zeros({rows}, DataType::Int).to(DeviceId::cuda(0)), l.table};
    (void)cache.runFusionWithInputs(std::vector<Argument>(other));
  }
  expectRefused([&] { cache.wait(); });
  cache.wait();
}

TEST_F(GpuStreams, OrderTensorsOfOtherLibraries) {
  FusionExecutorCache cache(twice());
  const Tensor memory = onGpu();
  for (const unsigned char byte : {1, 2, 3, 4, 5}) {
    fill(memory, byte);  // by the other library, on its stream
    const Tensor x = fromDlpack(toDlpack(memory, stream()), stream());
    EXPECT_EQ(cache.runFusionWithInputs({x})[0].to(DeviceId::cpu()).at({0}), 2 * filled(byte));
    Tensor result = cache.runFusionWithInputs({x})[0];
    dlpack::ManagedTensor* const handle = toDlpack(result, stream());
    fill(result, 7);  // by the other library, which then gives it back
    result = Tensor();
    handle->deleter(handle);
    EXPECT_EQ(read(memory), filled(byte));
  }
}

TEST(NoStream, OfACpuIsAUserError) {
  FusionExecutorCache cache(twice());
  const std::vector<Argument> x = {random({5}, 1)};
  std::vector<Tensor> y = {Tensor::empty({5}, DataType::Float)};
  const auto expectUserError = [](const std::function<void()>& call) {
    try {
      call();
      FAIL() << "no error";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("stream"), std::string::npos) << error.what();
    }
  };
  expectUserError([&] { cache.run(x, y, GpuStream{}); });
  expectUserError([&] { (void)toDlpack(y[0], GpuStream{}); });
  dlpack::ManagedTensor* const handle = toDlpack(y[0]);
  expectUserError([&] { (void)fromDlpack(handle, GpuStream{}); });
  cache.run(x, y);
  cache.wait();
}

}  // namespace
}  // namespace meshfuse
