// The CUDA device on a GPU, or on the simulated one: generated kernels compared as under the emulator, memory, queues, errors.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/refused_index.h"
#include "device/cuda/capabilities.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/device_runner.h"
#include "device/device.h"
#include "simt/program_cases.h"
#include "simt/scheduled/fusions.h"
#include "tile/builder.h"

namespace meshfuse {
namespace {

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    const CudaCapabilities c = cudaCapabilities();
    if (!c.driver) {
      GTEST_SKIP() << "no GPU: " << c.driverNote;
    }
    if (!c.nvrtc) {
      GTEST_SKIP() << "no NVRTC: " << c.nvrtcNote;
    }
    device_ = makeCudaDevice(0);
  }

  simt::Runner runner() {
    return [this](std::span<const simt::Launch> launches) { return runOnDevice(launches, *device_); };
  }

  void expectAllRight(const std::vector<simt::Comparison>& cases) {
    std::vector<simt::Verdict> verdicts = simt::compare(cases, runner());
    for (size_t i = 0; i < cases.size(); i++) {
      EXPECT_TRUE(verdicts[i].right()) << cases[i].describe() << ":\n" << verdicts[i].describe();
    }
  }

  void expectAllRight(const simt::ScheduledBatch& batch) {
    for (const simt::ScheduledVerdict& v : simt::runScheduled(batch.cases, device_->info(), runner())) {
      EXPECT_TRUE(v.right()) << v.describe();
    }
  }

  std::shared_ptr<Device> device_;
};

TEST_F(Gpu, CopiesThereAndBack) {
  EXPECT_EQ(device_->info().architecture.substr(0, 5), cudaCapabilities().devices.at(0).substr(0, 5));
  std::string text = "there and back";
  const std::shared_ptr<void> memory = device_->allocate(std::ssize(text));
  EXPECT_EQ(std::bit_cast<uint64_t>(memory.get()) % 64, 0);
  device_->write(memory.get(), text.data(), std::ssize(text));
  device_->write(static_cast<char*>(memory.get()) + 6, "HERE", 4);
  std::string back(text.size(), ' ');
  device_->read(back.data(), memory.get(), std::ssize(back));
  EXPECT_EQ(back, "there HERE" + text.substr(10));
  EXPECT_NE(device_->allocate(0), nullptr);
}

TEST_F(Gpu, SaysHowMuchMemoryIsFree) {
  try {
    static_cast<void>(device_->allocate(int64_t{1} << 60));
    FAIL() << "allocated";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cuda:0 has no memory for 1152921504606846976 bytes: "), std::string::npos)
        << error.what();
  }
}

// Work of a queue runs in its order; memory is given back after the work that uses it.
TEST_F(Gpu, QueuesWorkInOrder) {
  constexpr int64_t kBytes = 1000;
  const std::unique_ptr<Queue> queue = device_->makeQueue();
  const std::unique_ptr<Queue> other = device_->makeQueue();
  std::vector<char> ones(kBytes, 1);
  for (int i = 0; i < 20; i++) {
    std::shared_ptr<void> a = device_->allocate(kBytes);
    std::shared_ptr<void> b = device_->allocate(kBytes);
    device_->write(a.get(), ones.data(), kBytes);
    Queue& q = i % 2 == 0 ? *queue : *other;
    q.clear(b.get(), kBytes);
    const BytePiece pieces[] = {{.from = 0, .to = 500, .bytes = 100}, {.from = 10, .to = 0, .bytes = 3}, {.bytes = 0}};
    q.copy(b.get(), a.get(), pieces);
    a.reset();
    std::vector<char> got(kBytes);
    device_->read(got.data(), b.get(), kBytes);  // begins after the work of all queues
    for (int64_t k = 0; k < kBytes; k++) {
      ASSERT_EQ(got[k], (k >= 500 && k < 600) || k < 3 ? 1 : 0) << k;
    }
  }
  queue->wait();
  other->wait();
}

TEST_F(Gpu, CopiesStridedElements) {
  const std::unique_ptr<Queue> queue = device_->makeQueue();
  const int64_t sizes[] = {3, 5, 7};
  const int64_t rows[] = {35, 7, 1};
  const int64_t columns[] = {1, 3, 15};
  const int64_t apart[] = {80, 2, 11};
  std::vector<float> x(300);
  for (size_t i = 0; i < x.size(); i++) {
    x[i] = static_cast<float>(i);
  }
  const int64_t bytes = std::ssize(x) * 4;
  const std::shared_ptr<void> from = device_->allocate(bytes);
  const std::shared_ptr<void> to = device_->allocate(bytes);
  device_->write(from.get(), x.data(), bytes);
  for (const auto* source : {&rows, &columns, &apart}) {
    for (const auto* target : {&rows, &columns, &apart}) {
      queue->clear(to.get(), bytes);
      queue->copyElements({.data = to.get(), .sizes = sizes, .strides = *target},
                          {.data = from.get(), .sizes = sizes, .strides = *source});
      std::vector<float> z(x.size());
      device_->read(z.data(), to.get(), bytes);
      std::vector<float> expected(x.size());
      for (int64_t i = 0; i < 3; i++) {
        for (int64_t j = 0; j < 5; j++) {
          for (int64_t k = 0; k < 7; k++) {
            expected[i * (*target)[0] + j * (*target)[1] + k * (*target)[2]] =
                x[i * (*source)[0] + j * (*source)[1] + k * (*source)[2]];
          }
        }
      }
      ASSERT_EQ(z, expected);
    }
  }
  queue->wait();
}

// The first refused index is the error of the next wait, and later work runs.
TEST_F(Gpu, RefusesAnIndexAtTheNextWait) {
  using namespace tile;
  Builder b("lookup", Target::Gpu);
  b.gridDim("part", 2);
  const int64_t s =
      b.space("s", {{"i", 200, {{Level::Part, 0, "part"}, {Level::Warp, 1}, {Level::Lane, 32}, {Level::Vector, 4}}}});
  const int64_t x = b.tensor({"x", DataType::Float, Memory::Input, {10}, {1}, 16, false});
  const int64_t index = b.tensor({"index", DataType::Int, Memory::Input, {200}, {1}, 16, false});
  const int64_t z = b.tensor({"z", DataType::Float, Memory::Output, {200}, {1}, 16, false});
  const IntExpr i = b.coord(s, 0);
  const ValueId checked = b.checkedIndex(b.load(index, {{i}}, s), b.integer(DataType::Int, 10, s), s);
  b.store(z, {{i}}, b.load(x, {{0, checked}}, s));
  const Program program = b.take();

  std::vector<float> table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<int64_t> indices(200, 7);
  const std::shared_ptr<void> dx = device_->allocate(40);
  const std::shared_ptr<void> di = device_->allocate(1600);
  const std::shared_ptr<void> dz = device_->allocate(800);
  device_->write(dx.get(), table.data(), 40);
  const std::shared_ptr<const Kernel> kernel = device_->compile({&program, 1})[0];
  const std::unique_ptr<Queue> queue = device_->makeQueue();
  const uint64_t slots[] = {std::bit_cast<uint64_t>(dx.get()), std::bit_cast<uint64_t>(di.get()),
                            std::bit_cast<uint64_t>(dz.get())};
  for (const bool isWrong : {false, true, false}) {
    indices[150] = isWrong ? -3 : 7;
    device_->write(di.get(), indices.data(), 1600);
    queue->launch({.kernel = *kernel, .name = "take T2", .slots = slots, .checksIndices = true});
    if (isWrong) {
      try {
        queue->wait();
        FAIL() << "no error";
      } catch (const RefusedIndexError& error) {
        EXPECT_STREQ(error.what(), "[run] take T2: index -3 is out of range for an extent of 10; give 0 <= index < 10");
      }
    } else {
      queue->wait();
    }
    std::vector<float> got(200);
    device_->read(got.data(), dz.get(), 800);
    EXPECT_EQ(got[150], isWrong ? 0 : 7);
    EXPECT_EQ(got[149], 7);
  }
}

// Threads share the device; each has a queue.
TEST_F(Gpu, IsUsedByThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([this, t] {
      const std::unique_ptr<Queue> queue = device_->makeQueue();
      for (int i = 0; i < 10; i++) {
        const std::shared_ptr<void> a = device_->allocate(100 * (t + 1));
        queue->clear(a.get(), 100 * (t + 1));
        std::vector<char> got(100 * (t + 1), 1);
        device_->read(got.data(), a.get(), std::ssize(got));
        EXPECT_EQ(got, std::vector<char>(got.size(), 0));
      }
      queue->wait();
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
}

TEST_F(Gpu, PointwisePrograms) { expectAllRight(simt::pointwisePrograms()); }
TEST_F(Gpu, RowPrograms) { expectAllRight(simt::rowPrograms()); }
TEST_F(Gpu, ColumnPrograms) { expectAllRight(simt::columnPrograms()); }

TEST_F(Gpu, ScheduledPointwise) { expectAllRight(simt::pointwiseFusions()); }
TEST_F(Gpu, ScheduledReductions) { expectAllRight(simt::reductionFusions()); }
TEST_F(Gpu, ScheduledNormalizations) { expectAllRight(simt::normalizationFusions()); }

TEST(NoGpu, IsADeviceErrorWithTheReason) {
  const CudaCapabilities c = cudaCapabilities();
  if (c.driver) {
    GTEST_SKIP() << "there is a GPU: " << c.driverNote;
  }
  try {
    static_cast<void>(makeCudaDevice(0));
    FAIL() << "made";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("[cuda] "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(c.driverNote), std::string::npos) << error.what();
  }
}

TEST_F(Gpu, AnotherIndexIsADeviceErrorWithTheNumber) {
  for (const int64_t index : {int64_t{-1}, int64_t{999}}) {
    try {
      static_cast<void>(makeCudaDevice(index));
      FAIL() << "made";
    } catch (const DeviceError& error) {
      EXPECT_NE(std::string(error.what()).find("there is no device cuda:" + std::to_string(index)), std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace meshfuse
