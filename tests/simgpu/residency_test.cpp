// Programs that hang on a real GPU: calls that wait for all work of a device while a collective of it waits for its peer, and communicators whose
// calls occupy two devices in different orders.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "simgpu/captures.h"
#include "simgpu/collectives.h"

namespace meshfuse::residency {
namespace {

using cuda::DevicePointer;
using cuda::Result;

constexpr auto kLonger = std::chrono::milliseconds(80);  // than all delays of a program

class Residency : public CollectiveTest {
 protected:
  Residency() : CollectiveTest(2) { set("SIMGPU_NCCL_WAIT", "0"); }
};

// -- calls that may wait for the device -------------------------------------------------------------------------------

using HostCall = std::function<void(Simulated&, DevicePointer memory, void* pinned, cuda::Module module)>;

const std::vector<HostCall> kCalls = {
    [](Simulated& gpu, DevicePointer, void*, cuda::Module) { gpu.allocate(64); },
    [](Simulated& gpu, DevicePointer, void*, cuda::Module) { gpu.pinned(1); },
    [](Simulated& gpu, DevicePointer, void* pinned, cuda::Module) { gpu.expect(gpu.pinnedFree(pinned), "free"); },
    [](Simulated& gpu, DevicePointer, void*, cuda::Module) { gpu.kernel(kTwice, "twice"); },
    [](Simulated& gpu, DevicePointer, void*, cuda::Module m) { gpu.expect(gpu.moduleUnload(m), "cuModuleUnload"); },
    [](Simulated& gpu, DevicePointer memory, void*, cuda::Module) { gpu.expect(gpu.memoryFree(memory), "cuMemFree"); }};

// Rank 0 makes the call while its collective waits for that of rank 1, which waits for the call to return.
SimulatedProgram callBesideACollective(const HostCall& call, bool returns) {
  return onRanks(2, [=](Rank& rank) {
    static std::atomic<bool> isPosted;
    static std::atomic<bool> hasReturned;
    const DevicePointer x = rank.buffer(std::vector<float>{1});
    const DevicePointer memory = rank.gpu.allocate(64);
    void* const pinned = rank.gpu.pinned(1);
    cuda::Module module = nullptr;
    rank.gpu.kernel(kTwice, "twice", "sm_90", &module);
    rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
    rank.synchronize();
    if (rank.number == 0) {
      rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
      isPosted = true;
      call(rank.gpu, memory, pinned, module);
      hasReturned = true;
    } else {
      while (!isPosted) {
        std::this_thread::yield();
      }
      std::this_thread::sleep_for(kLonger);
      require(hasReturned == returns, returns ? "the call returns" : "the call waits for the collective");
      rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
    }
    rank.synchronize();
  });
}

TEST_F(Residency, CallsWaitForTheDevice) {
  set("SIMGPU_SYNCHRONIZE", "100");
  for (const HostCall& call : kCalls) {
    expectFine(callBesideACollective(call, false));
  }
}

TEST_F(Residency, CallsNeedNotWaitForTheDevice) {
  set("SIMGPU_SYNCHRONIZE", "0");
  for (size_t i = 0; i + 1 < kCalls.size(); i++) {  // cuMemFree always does
    expectFine(callBesideACollective(kCalls[i], true));
  }
}

// That such a call has waited is no order that a program may build on.
TEST_F(Residency, CallsThatMayWaitOrderNothing) {
  set("SIMGPU_SYNCHRONIZE", "100");
  expectReport("cuMemsetD8Async.*nothing orders the two", [](Simulated& gpu) {
    const DevicePointer a = gpu.allocate(64);
    gpu.expect(gpu.fillAsync(a, 1, 64, gpu.stream()), "fill");
    gpu.allocate(64);
    gpu.expect(gpu.fillAsync(a, 2, 64, gpu.stream()), "fill");
    gpu.contextSynchronize();
  });
}

// A program may promise that it makes no such call before it has waited for its collectives.
TEST_F(Residency, CallsBeforeTheEndOfACollectiveAreReportedIfAsked) {
  set("SIMGPU_REPORT_WAITS", "1");
  const auto program = [](bool waitsBefore) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(std::vector<float>{1});
      rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
      if (waitsBefore) {
        rank.synchronize();
      }
      rank.gpu.pinned(1);
      rank.synchronize();
    });
  };
  expectFine(program(true));
  expectReport("cuMemHostAlloc may wait for all work of the device.*ncclAllReduce", program(false));
}

// -- collectives that occupy a device ---------------------------------------------------------------------------------

struct TwoCommunicators {
  explicit TwoCommunicators(Rank& r) : rank(r), stream(r.gpu.stream()) {
    rank.expect(rank.nccl.split(rank.communicator, 0, rank.number, &part, nullptr), "ncclCommSplit");
    x = rank.buffer(std::vector<float>{1});
    y = rank.buffer(std::vector<float>{1});
  }
  void whole() { post(rank.communicator, x, rank.stream); }
  void ofPart() { post(part, y, stream); }
  void post(nccl::Communicator on, DevicePointer at, cuda::Stream where) const {
    const nccl::Result result = rank.nccl.allReduce(bufferAt(at), bufferAt(at), 1, nccl::ElementType::Float,
                                                    nccl::ReduceOperation::Sum, on, where);
    require(result == nccl::Result::Success, "ncclAllReduce");
  }
  bool haveEnded() const {
    std::this_thread::sleep_for(kLonger);
    return rank.gpu.streamQuery(rank.stream) == Result::Success && rank.gpu.streamQuery(stream) == Result::Success;
  }
  void abort() const {
    for (const nccl::Communicator c : {part, rank.communicator}) {
      require(rank.nccl.abort(c) == nccl::Result::Success, "ncclCommAbort");
    }
    rank.gpu.expect(rank.gpu.contextSynchronize(), "the streams go on after the abort");
  }

  Rank& rank;
  cuda::Stream stream;
  nccl::Communicator part = nullptr;
  DevicePointer x = 0, y = 0;
};

// Each rank posts a call on each of two communicators, the second one when the first has occupied the device.
SimulatedProgram inOrders(bool isSame, bool ends) {
  return onRanks(2,
                 [=](Rank& rank) {
                   static Rendezvous first(2);
                   static Rendezvous last(2);
                   TwoCommunicators c(rank);
                   const bool isWholeFirst = isSame || rank.number == 0;
                   isWholeFirst ? c.whole() : c.ofPart();
                   std::this_thread::sleep_for(kLonger);
                   first.wait();
                   isWholeFirst ? c.ofPart() : c.whole();
                   require(c.haveEnded() == ends, ends ? "the calls end" : "the calls wait for each other");
                   last.wait();
                   c.abort();
                 },
                 {.isDestroyed = false});
}

TEST_F(Residency, CommunicatorsInDifferentOrdersHang) { expectFine(inOrders(false, false)); }

TEST_F(Residency, CommunicatorsInTheSameOrderDoNotHang) { expectFine(inOrders(true, true)); }

TEST_F(Residency, CommunicatorsForWhichADeviceHasRoomDoNotHang) {
  set("SIMGPU_NCCL_RESIDENT", "2");
  expectFine(inOrders(false, true));
}

// Calls that are posted at once start in any order, unless an event chains them.
TEST_F(Residency, EventsChainCommunicators) {
  expectFine(onRanks(2,
                     [](Rank& rank) {
                       TwoCommunicators c(rank);
                       for (int i = 0; i < 10; i++) {
                         c.whole();
                         order(rank.gpu, rank.stream, c.stream);
                         c.ofPart();
                         order(rank.gpu, c.stream, rank.stream);
                       }
                       rank.gpu.expect(rank.gpu.contextSynchronize(), "cuCtxSynchronize");
                       c.abort();
                     },
                     {.isDestroyed = false}));
}

TEST_F(Residency, WithoutAnEventTheyMayHang) {
  expectFine(onRanks(2,
                     [](Rank& rank) {
                       static std::atomic<int> hung = 0;
                       static Rendezvous last(2);
                       TwoCommunicators c(rank);
                       for (int i = 0; i < 60; i++) {
                         c.whole();
                         c.ofPart();
                       }
                       for (int i = 0; i < 10 && !c.haveEnded(); i++) {
                       }
                       hung += c.haveEnded() ? 0 : 1;
                       last.wait();
                       require(hung == 2, "some of the calls start in different orders");
                       c.abort();
                     },
                     {.isDestroyed = false}));
}

// Ranks that share a device do not take the room of one another. An allocation waits for the device, so each rank has its memory before any
// call is posted.
TEST_F(Residency, RanksOfOneDeviceDoNotHang) {
  set("SIMGPU_DEVICES", "1");
  auto haveMemory = std::make_shared<Rendezvous>(4);
  expectFine(onRanks(4, [=](Rank& rank) {
    nccl::Communicator part = nullptr;
    rank.expect(rank.nccl.split(rank.communicator, rank.number / 2, 0, &part, nullptr), "ncclCommSplit");
    const DevicePointer x = rank.buffer(std::vector<float>{1});
    haveMemory->wait();
    for (int i = 0; i < 5; i++) {
      rank.expect(rank.nccl.allReduce(bufferAt(x), bufferAt(x), 1, nccl::ElementType::Float, nccl::ReduceOperation::Sum,
                                      part, rank.stream),
                  "ncclAllReduce");
      rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
    }
    rank.synchronize();
    require(rank.nccl.destroy(part) == nccl::Result::Success, "ncclCommDestroy");
  }));
}

}  // namespace
}  // namespace meshfuse::residency
