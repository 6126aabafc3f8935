// More faults of the host side, planted into programs on the simulated GPU: calls that come too soon, on the wrong stream, between collectives,
// or after an abort. Each test runs its program first with nothing planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/library.h"
#include "device/cuda/driver/streams.h"
#include "device/cuda/forwarding_queue.h"
#include "device/cuda/planted.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

using Change = std::function<void(HostProgram&)>;
using Program = std::function<std::unique_ptr<Fusion>()>;

// A matrix cut by rows, four for each rank, and the result of build() for it.
Program ofRows(const std::function<TensorView*(TensorView*, const DeviceMesh&)>& build) {
  return [build] {
    auto fusion = std::make_unique<Fusion>();
    FusionGuard guard(fusion.get());
    const DeviceMesh mesh = DeviceMesh::createForNumDevices(kPlantedRanks);
    TensorView* x = makeContigConcreteTensor({4 * kPlantedRanks, 6});
    fusion->addInput(x);
    x->setDeviceMesh(mesh);
    x->outer_split(0, kPlantedRanks);
    x->axis(0)->parallelize(ParallelType::DIDx);
    TensorView* y = build(x, mesh);
    y->setDeviceMesh(mesh);
    fusion->addOutput(y);
    return fusion;
  };
}

// Each row moves up by one: a rank keeps some of its rows, and gets one from its neighbour.
TensorView* shifted(TensorView* x, const DeviceMesh&) {
  TensorView* y = pad(neg(x), {0, 0, -1, 1});
  y->outer_split(0, kPlantedRanks);
  y->axis(0)->parallelize(ParallelType::DIDx);
  return y;
}

// Columns in place of rows: ranks exchange blocks.
TensorView* turned(TensorView* x, const DeviceMesh&) {
  TensorView* y = set(x);
  y->outer_split(1, kPlantedRanks);
  y->axis(1)->parallelize(ParallelType::DIDx);
  return y;
}

class GpuPlantedCalls : public GpuPlanted {
 protected:
  // The program is right without a change, and with it is reported with this phrase.
  static void expectNamed(const Change& change, const std::string& phrase, const Program& program) {
    const auto ended = [&](const Change& c) { return run("", [&] { return callsAreRight(c, true, program); }); };
    const Ended right = ended([](HostProgram&) {});
    EXPECT_EQ(right.end, End::Right) << right.text;
    const Ended wrong = ended(change);
    EXPECT_EQ(wrong.end, End::Reported) << wrong.text;
    EXPECT_NE(wrong.text.find(phrase), std::string::npos) << wrong.text << "\nexpected: " << phrase;
  }

  // Of the n-th calls of a kind that are left out, some are reported with one of these phrases; the others change nothing.
  static void expectSomeNamed(const std::string& kind, int calls, const std::vector<std::string>& phrases,
                              const std::function<bool()>& body) {
    const Ended right = run("", body);
    EXPECT_EQ(right.end, End::Right) << right.text;
    int named = 0;
    for (int n = 1; n <= calls; n++) {
      const Ended ended = run(kind + ":" + std::to_string(n), body);
      EXPECT_TRUE(ended.end == End::Right || ended.end == End::Reported) << n << ": " << ended.text;
      const auto says = [&](const std::string& phrase) { return ended.text.find(phrase) != std::string::npos; };
      named += ended.end == End::Reported && std::ranges::any_of(phrases, says) ? 1 : 0;
    }
    EXPECT_GE(named, 1) << kind << ", " << phrases[0];
  }
};

// A step of the other queue waits for the step before the one whose result it reads.
TEST_F(GpuPlantedCalls, AnEventRecordedTooSoonIsNamed) {
  const auto recordSooner = [](HostProgram& host) {
    int64_t moved = 0;
    for (Step& s : host.steps) {
      for (int64_t& awaited : s.order.waits) {
        const int64_t queue = host.steps[awaited].order.queue;
        int64_t sooner = awaited - 1;
        while (sooner >= 0 && host.steps[sooner].order.queue != queue) {
          sooner--;
        }
        if (queue != s.order.queue && sooner >= 0) {
          awaited = sooner;
          moved++;
        }
      }
    }
    check(moved > 0, "[test] no event can be recorded sooner");
  };
  expectNamed(recordSooner, "simulated GPU: found in", [] { return sumsBesideWork(kPlantedRanks); });
}

// Copies are work of a stream that nothing orders with the other work.
class CopiesElsewhere final : public ForwardingQueue {
 public:
  CopiesElsewhere(std::unique_ptr<Queue> to, std::unique_ptr<Queue> elsewhere)
      : ForwardingQueue(std::move(to)), elsewhere_(std::move(elsewhere)) {}
  void copy(void* to, const void* from, std::span<const BytePiece> pieces) override {
    elsewhere_->copy(to, from, pieces);
  }

 private:
  const std::unique_ptr<Queue> elsewhere_;
};

TEST_F(GpuPlantedCalls, ACopyOnTheWrongStreamIsNamed) {
  const auto copyElsewhere = [](HostProgram& host) {
    const std::shared_ptr<Device> device = host.device;
    host.device = std::make_shared<QueueWrappingDevice>(device, [device](std::unique_ptr<Queue> queue) {
      return std::make_unique<CopiesElsewhere>(std::move(queue), device->makeQueue());
    });
  };
  expectNamed(copyElsewhere, "cuMemcpyDtoDAsync", ofRows(shifted));
}

// Memory of the host is allocated before each kernel, and so between collectives.
class AllocatesBetween final : public ForwardingQueue {
 public:
  using ForwardingQueue::ForwardingQueue;
  void launch(const Launch& launch) override {
    const CudaContext context(0);
    const CurrentContext current(context);
    void* memory = nullptr;
    succeed(loadedDriver().pinnedAllocate(&memory, 64, cuda::kPortableMemory), "cuMemHostAlloc", "test");
    to_->launch(launch);
  }
};

TEST_F(GpuPlantedCalls, AnAllocationBetweenCollectivesIsNamed) {
  setenv("SIMGPU_REPORT_WAITS", "1", 1);
  const auto allocate = [](HostProgram& host) {
    host.device = std::make_shared<QueueWrappingDevice>(
        host.device, [](std::unique_ptr<Queue> queue) { return std::make_unique<AllocatesBetween>(std::move(queue)); });
  };
  expectNamed(allocate, "cuMemHostAlloc may wait for all work of the device",
              [] { return sumsBesideWork(kPlantedRanks); });
  unsetenv("SIMGPU_REPORT_WAITS");
}

// A call on a stream, and read() of its result while the call is under way. Nobody keeps the argument and the result.
bool streamCallIsRight(const std::function<bool(const Tensor& result)>& read) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({64, 8});
    fusion->addInput(x);
    fusion->addOutput(neg(x));
  }
  FusionExecutorCache cache(std::move(fusion));
  const CudaContext context(0);
  const CurrentContext current(context);
  const CudaStream stream(context);
  bool isRight = true;
  {
    const std::vector<Argument> x = {Tensor::zeros({64, 8}, DataType::Float).to(DeviceId::cuda(0))};
    std::vector<Tensor> y = {Tensor::empty({64, 8}, DataType::Float, DeviceId::cuda(0))};
    cache.run(x, y, GpuStream{stream.get()});
    isRight = read(y[0]);
  }
  cache.wait();
  stream.synchronize("test");
  return isRight;
}

TEST_F(GpuPlantedCalls, MemoryThatIsFreedEarlyIsNamed) {
  expectSomeNamed("wait", 8, {"frees memory that", "no allocation", "not allocated"},
                  [] { return streamCallIsRight([](const Tensor&) { return true; }); });
}

TEST_F(GpuPlantedCalls, AReadBeforeTheEndIsNamed) {
  expectSomeNamed("wait", 8, {"cuMemcpyDtoHAsync"}, [] {
    return streamCallIsRight([](const Tensor& y) { return y.toVector() == std::vector<double>(64 * 8, 0); });
  });
}

// Streams use new memory, and what the host has written, when the host has waited for both: for the argument, its elements, and the result.
TEST_F(GpuPlantedCalls, AMissingWaitOfTheHostIsNamed) {
  const auto body = [] {
    return streamCallIsRight([](const Tensor& y) { return y.toVector() == std::vector<double>(64 * 8, 0); });
  };
  EXPECT_EQ(run("", body).end, End::Right);
  for (int n = 1; n <= 3; n++) {
    const Ended ended = run("synchronize:" + std::to_string(n), body);
    EXPECT_EQ(ended.end, End::Reported) << n << ": " << ended.text;
    EXPECT_NE(ended.text.find("nothing orders the two"), std::string::npos) << n << ": " << ended.text;
  }
}

// A kernel writes an index that it refuses to pinned memory, which the host reads when its queue has waited.
TEST_F(GpuPlantedCalls, AWaitOfAQueueThatDoesNotWaitIsNamed) {
  expectSomeNamed("synchronize", 8, {"the host reads pinned memory that cuLaunchKernelEx"}, [] {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      TensorView* i = makeContigConcreteTensor({5}, DataType::Int);
      TensorView* w = makeContigConcreteTensor({8, 4});
      fusion->addInput(i);
      fusion->addInput(w);
      fusion->addOutput(embedding_fwd(i, w));
    }
    FusionExecutorCache cache(std::move(fusion));
    const DeviceId gpu = DeviceId::cuda(0);
    const std::vector<Argument> in = {Tensor::of({0, 1, 2, 3, 4}, {5}, DataType::Int).to(gpu),
                                      Tensor::zeros({8, 4}, DataType::Float).to(gpu)};
    return cache.runFusionWithInputs(in)[0].toVector() == std::vector<double>(20, 0);
  });
}

// The blocks that two ranks exchange are messages of one group. Without the group each rank waits for the other one.
TEST_F(GpuPlantedCalls, AMissingGroupIsAnErrorWithTheCollective) {
  const auto ended = [](const std::string& plant) {
    return run(plant, [] { return callsAreRight(nullptr, false, ofRows(turned)); });
  };
  EXPECT_EQ(ended("").end, End::Right);
  const Ended wrong = ended("group:1");
  EXPECT_EQ(wrong.end, End::Error) << wrong.text;
  const auto says = [&](const std::string& function) {
    return wrong.text.find("[nccl] " + function + " of all-to-all of 12 Float in team {0, 1} failed: ") !=
           std::string::npos;
  };
  EXPECT_TRUE(says("ncclSend") || says("ncclRecv")) << wrong.text;  // the first call after one that is in progress
}

// Kernels that this NVRTC compiles are not for this driver.
TEST_F(GpuPlantedCalls, ADriverOlderThanNvrtcIsAnErrorWithTheRemedy) {
  const Ended ended = run("", [] {
    setenv("SIMGPU_DRIVER", "12040", 1);
    (void)Tensor::empty({4}, DataType::Float, DeviceId::cuda(0));
    return true;
  });
  EXPECT_EQ(ended.end, End::Error) << ended.text;
  EXPECT_NE(ended.text.find("the driver has CUDA 12.4 and cannot load kernels that NVRTC 13."), std::string::npos)
      << ended.text;
}

TEST_F(GpuPlantedCalls, ACommunicatorAfterItsAbortIsNamed) {
  const Ended ended = run("communicator:2", [] { return callsAreRight(); });
  EXPECT_EQ(ended.end, End::Reported) << ended.text;
  EXPECT_NE(ended.text.find("the communicator has been destroyed or aborted"), std::string::npos) << ended.text;
}

}  // namespace
}  // namespace meshfuse
