// Faults of the host side that are planted into programs on the simulated GPU: a call of the driver is left out, or the collectives of a rank
// change places. Each is reported, makes a wrong number or an error, or changes nothing because other calls order the same work.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/library.h"
#include "device/cuda/driver/streams.h"
#include "device/cuda/planted.h"
#include "device/device.h"
#include "device/open.h"
#include "host/executor.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/device_communicator.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

TEST_F(GpuPlanted, NothingIsFoundWhereNothingIsPlanted) {
  const Ended ended = run("", [] { return callsAreRight(); });
  EXPECT_EQ(ended.end, End::Right) << ended.text;
}

// Each edge between the two queues of the program is needed.
TEST_F(GpuPlanted, AWaitThatAStepLeavesOutIsNamed) {
  int edges = 0;
  for (bool isLast = false; !isLast; edges++) {
    const Ended ended = run("", [edges] {
      return callsAreRight(
          [edges](HostProgram& host) {
            int number = 0;
            for (Step& s : host.steps) {
              std::erase_if(s.order.waits, [&](int64_t earlier) {
                return (host.steps[earlier].order.queue != s.order.queue) && number++ == edges;
              });
            }
            check(number > edges, "[test] there are {} edges", number);
          },
          true);
    });
    isLast = ended.text.find("[test] there are") != std::string::npos;
    if (!isLast) {
      EXPECT_EQ(ended.end, End::Reported) << "edge " << edges << ": " << ended.text;
      EXPECT_NE(ended.text.find("simulated GPU: found in"), std::string::npos) << ended.text;
    }
  }
  EXPECT_GE(edges, 3);
}

enum class Tensors : uint8_t { Kept, OfTheCallBeforeFreed };

// A program of two kernels on one GPU, ordered with a stream of the caller; each call has tensors of its own, at other addresses than the call
// before.
bool streamCallsAreRight(Tensors tensors = Tensors::Kept) {
  auto fusion = std::make_unique<Fusion>();
  {
    FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor({4, 8});
    fusion->addInput(x);
    TensorView* y = sub(x, broadcast(mean(x, {0}), {true, false}));
    fusion->addOutput(div(y, broadcast(sum(mul(y, y), {1}), {false, true})));
  }
  FusionExecutorCache cache(std::move(fusion));
  FusionExecutorCache stepwise(cache.fusion().clone(), {.verify = Verify::Always});
  const CudaContext context(0);
  const CurrentContext current(context);
  const CudaStream stream(context);
  bool isRight = true;
  std::vector<Tensor> kept;
  for (uint64_t call = 0; call < 4; call++) {
    const Tensor from = randomTensor({4, 8}, DataType::Float, call).to(DeviceId::cuda(0));
    const Tensor x = Tensor::empty({4, 8}, DataType::Float, DeviceId::cuda(0));
    std::vector<Tensor> y = {Tensor::empty({4, 8}, DataType::Float, DeviceId::cuda(0))};
    const Tensor to = Tensor::empty({4, 8}, DataType::Float, DeviceId::cuda(0));
    if (tensors == Tensors::OfTheCallBeforeFreed) {
      kept.clear();
    }
    kept.insert(kept.end(), {x, y[0]});
    const auto copy = [&](const Tensor& target, const Tensor& source) {
      succeed(loadedDriver().copyOnDeviceAsync(std::bit_cast<cuda::DevicePointer>(target.data()),
                                               std::bit_cast<cuda::DevicePointer>(source.data()), source.nbytes(),
                                               stream.get()),
              "cuMemcpyDtoDAsync", "test");
    };
    copy(x, from);
    cache.run(std::vector<Argument>{x}, y, GpuStream{stream.get()});
    copy(to, y[0]);
    stream.synchronize("test");
    isRight = isRight && to.toVector() == stepwise.runFusionWithInputs({from})[0].toVector();
  }
  return isRight;
}

// The first two order a call with the stream; those after it order copies of results with work that has ended.
TEST_F(GpuPlanted, AMissingWaitOrEventIsNamed) {
  for (const std::string kind : {"wait", "record"}) {
    int reported = 0;
    for (int n = 1; n <= 6; n++) {
      const Ended ended = run(kind + ":" + std::to_string(n), [] { return streamCallsAreRight(); });
      EXPECT_NE(ended.end, End::Error) << kind << " " << n << ": " << ended.text;
      EXPECT_NE(ended.end, End::Wrong) << kind << " " << n << ": " << ended.text;
      if (ended.end == End::Reported) {
        reported++;
        EXPECT_NE(ended.text.find("simulated GPU: found in"), std::string::npos) << ended.text;
      }
    }
    EXPECT_GE(reported, 2) << kind;
  }
}

TEST_F(GpuPlanted, AStaleAddressInAGraphIsFound) {
  for (int n = 1; n <= 3; n++) {
    const Ended ended = run("update:" + std::to_string(n), [] { return streamCallsAreRight(); });
    EXPECT_TRUE(ended.end == End::Reported || ended.end == End::Wrong) << n << ": " << ended.text;
  }
}

TEST_F(GpuPlanted, AnAddressOfFreedMemoryInAGraphIsNamed) {
  const auto body = [] { return streamCallsAreRight(Tensors::OfTheCallBeforeFreed); };
  EXPECT_EQ(run("", body).end, End::Right);
  for (int n = 1; n <= 3; n++) {
    const Ended ended = run("update:" + std::to_string(n), body);
    EXPECT_EQ(ended.end, End::Reported) << n << ": " << ended.text;
    EXPECT_NE(ended.text.find("which has been freed"), std::string::npos) << n << ": " << ended.text;
  }
}

TEST_F(GpuPlanted, CollectivesThatChangePlacesAreNamed) {
  const Ended ended = run("", [] {
    return callsAreRight([](HostProgram& host) {
      auto sizes = std::make_shared<ProgramSizes>(host.sizes());
      const auto first = std::ranges::find(host.steps, HostStepKind::Communicate, &Step::kind);
      sizes->steps[first - host.steps.begin()].comm.count /= 2;  // as if another sum came first
      host.constant = std::move(sizes);
    });
  });
  EXPECT_EQ(ended.end, End::Reported) << ended.text;
  EXPECT_NE(ended.text.find("the count is"), std::string::npos) << ended.text;
}

enum class RecordedFault : uint8_t { None, OtherOrder, FreedMemory };

// Two ranks record two sums of their own and replay each of them twice; rank 1 makes the mistake.
bool replayedSumsAreRight(RecordedFault fault) {
  std::array<bool, kPlantedRanks> isRight = {};
  const auto body = [&](Communicator& comm) {
    const std::shared_ptr<Device> gpu = openDevice(DeviceId::cuda(comm.rank()));
    const std::shared_ptr<DeviceCommunicator> onGpus = gpu->communicator(comm);
    const std::unique_ptr<Queue> queue = gpu->makeQueue();
    std::vector<Tensor> tensors;
    std::vector<std::unique_ptr<Recording>> recordings;
    onGpus->use(queue.get());
    for (const double value : {1, 10}) {
      tensors.push_back(Tensor::of({value, value}, {2}, DataType::Float).to(gpu->id()));
      void* const memory = tensors.back().data();
      recordings.push_back(onGpus->capture(
          *queue, [&] { onGpus->allReduce(comm.world(), memory, memory, 2, DataType::Float, ReduceOp::Sum); }));
    }
    const bool isWrong = comm.rank() == 1;
    if (isWrong && fault == RecordedFault::OtherOrder) {
      std::swap(recordings[0], recordings[1]);
    }
    if (isWrong && fault == RecordedFault::FreedMemory) {
      tensors[0] = Tensor();
    }
    for (int i = 0; i < 4; i++) {
      onGpus->replay(*queue, *recordings[i % 2]);
    }
    onGpus->finish();
    queue->wait();
    isRight[comm.rank()] = tensors[1].toVector() == std::vector<double>{40, 40};
    onGpus->use(nullptr);
  };
  runLoopback(kPlantedRanks, body, {.deadline = std::chrono::milliseconds(10'000)});
  return std::ranges::all_of(isRight, std::identity());
}

TEST_F(GpuPlanted, RecordingsOfCollectivesThatAreWrongAreNamed) {
  using enum RecordedFault;
  const auto ended = [](RecordedFault fault) { return run("", [fault] { return replayedSumsAreRight(fault); }); };
  EXPECT_EQ(ended(None).end, End::Right);
  for (const auto& [fault, report] : {std::pair(OtherOrder, "are calls of graphs, but not of one capture"),
                                      std::pair(FreedMemory, "which has been freed")}) {
    const Ended wrong = ended(fault);
    EXPECT_EQ(wrong.end, End::Reported) << wrong.text;
    EXPECT_NE(wrong.text.find(report), std::string::npos) << wrong.text;
  }
}

}  // namespace
}  // namespace meshfuse
