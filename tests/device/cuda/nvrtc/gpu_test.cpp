// Generated kernels on a GPU, where there is one: each compiled for it, launched, and compared as under the emulator.
#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"
#include "device/cuda/nvrtc/capabilities.h"
#include "device/cuda/nvrtc/device_memory.h"
#include "device/cuda/nvrtc/device_runner.h"
#include "simt/program_cases.h"
#include "simt/scheduled/fusions.h"

namespace meshfuse {
namespace {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    CudaCapabilities c = cudaCapabilities();
    if (!c.driver) {
      GTEST_SKIP() << "no GPU: " << c.driverNote;
    }
    if (!c.nvrtc) {
      GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
    }
    device_ = std::make_unique<CudaDevice>();
    if (device_->majorCapability() < 8) {
      GTEST_SKIP() << "generated kernels need sm_80 or later, the GPU is " << device_->architecture();
    }
  }

  simt::Runner runner() {
    return [this](std::span<const simt::Launch> launches) { return runOnDevice(launches, *device_, compiler_); };
  }

  void expectAllRight(const std::vector<simt::Comparison>& cases) {
    std::vector<simt::Verdict> verdicts = simt::compare(cases, runner());
    for (size_t i = 0; i < cases.size(); i++) {
      EXPECT_TRUE(verdicts[i].right()) << cases[i].describe() << ":\n" << verdicts[i].describe();
    }
  }

  void expectAllRight(const simt::ScheduledBatch& batch) {
    DeviceInfo info = DeviceInfo::hopper();
    info.architecture = device_->architecture();
    for (const simt::ScheduledVerdict& v : simt::runScheduled(batch.cases, info, runner())) {
      EXPECT_TRUE(v.right()) << v.describe();
    }
  }

  std::unique_ptr<CudaDevice> device_;
  NvrtcCompiler compiler_;
};

TEST_F(Gpu, CopiesThereAndBack) {
  EXPECT_EQ(device_->architecture(), cudaCapabilities().devices.at(0));
  std::string text = "there and back";
  auto size = std::ssize(text);
  CudaMemory memory(size);
  memory.write(text.data(), size);
  memory.write("HERE", 4, 6);
  std::string back(text.size(), ' ');
  memory.read(back.data(), size);
  EXPECT_EQ(back, "there HERE" + text.substr(10));
  EXPECT_THROW(memory.read(back.data(), size, 1), UserError);
  EXPECT_EQ(CudaMemory(0).address(), 0);
}

TEST_F(Gpu, SaysWhichCallFailed) {
  try {
    CudaMemory memory(int64_t{1} << 60);
    FAIL() << "allocated";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("cuMemAlloc of 1152921504606846976 bytes failed: "), std::string::npos)
        << error.what();
  }
}

TEST_F(Gpu, PointwisePrograms) { expectAllRight(simt::pointwisePrograms()); }
TEST_F(Gpu, RowPrograms) { expectAllRight(simt::rowPrograms()); }
TEST_F(Gpu, ColumnPrograms) { expectAllRight(simt::columnPrograms()); }

TEST_F(Gpu, ScheduledPointwise) { expectAllRight(simt::pointwiseFusions()); }
TEST_F(Gpu, ScheduledReductions) { expectAllRight(simt::reductionFusions()); }
TEST_F(Gpu, ScheduledNormalizations) { expectAllRight(simt::normalizationFusions()); }

template <class Make>
void expectRefused(const Make& make) {
  CudaCapabilities c = cudaCapabilities();
  if (c.driver) {
    GTEST_SKIP() << "there is a GPU: " << c.driverNote;
  }
  try {
    make();
    FAIL() << "made";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("[cuda] "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(c.driverNote), std::string::npos) << error.what();
  }
}

TEST(NoGpu, RefusesADeviceWithTheReason) {
  expectRefused([] { CudaDevice device; });
}

TEST(NoGpu, RefusesMemoryWithTheReason) {
  expectRefused([] { CudaMemory memory(16); });
  expectRefused([] { CudaMemory memory(0); });
}

}  // namespace
}  // namespace meshfuse
