// Collectives on streams: what they are ordered with, which calls belong together, and what happens when peers do not come.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "simgpu/collectives.h"

namespace meshfuse::collective_order {
namespace {

using cuda::DevicePointer;
using nccl::ElementType;
using nccl::ReduceOperation;
using nccl::Result;

constexpr size_t kCount = 8;
constexpr size_t kBytes = kCount * sizeof(float);
constexpr const char* kRace = "nothing orders the two";
const std::vector<float> kOnes(kCount, 1);

class CollectiveOrder : public CollectiveTest {};

// -- with the work of the rank's own device ---------------------------------------------------------------------------

// A fill of the send buffer, the collective and a fill of the receive buffer on three streams
RankProgram betweenOtherWork(bool afterFill, bool beforeFill) {
  return [=](Rank& rank) {
    const DevicePointer x = rank.buffer(kOnes);
    const DevicePointer y = rank.gpu.allocate(kBytes);
    const cuda::Stream in = rank.gpu.stream();
    const cuda::Stream out = rank.gpu.stream();
    const cuda::Event isIn = rank.gpu.event();
    const cuda::Event isOut = rank.gpu.event();
    rank.gpu.expect(rank.gpu.fillAsync(x, 0, kBytes, in), "fill");
    rank.gpu.expect(rank.gpu.eventRecord(isIn, in), "record");
    if (afterFill) {
      rank.gpu.expect(rank.gpu.streamWaitEvent(rank.stream, isIn, 0), "wait");
    }
    rank.expect(rank.allReduce(x, y, kCount), "ncclAllReduce");
    rank.gpu.expect(rank.gpu.eventRecord(isOut, rank.stream), "record");
    if (beforeFill) {
      rank.gpu.expect(rank.gpu.streamWaitEvent(out, isOut, 0), "wait");
    }
    rank.gpu.expect(rank.gpu.fillAsync(y, 0, kBytes, out), "fill");
    rank.gpu.expect(rank.gpu.contextSynchronize(), "synchronize");
  };
}

TEST_F(CollectiveOrder, IsThatOfStreamsAndEvents) {
  expectFine(onRanks(2, betweenOtherWork(true, true)));
  expectReport(kRace, onRanks(2, betweenOtherWork(false, true)));
  expectReport(kRace, onRanks(2, betweenOtherWork(true, false)));
}

TEST_F(CollectiveOrder, GivesACallToMemoryThatIsWrittenAndLives) {
  expectReport("ncclAllReduce of rank . of 2.*reads bytes that nobody has written.*as what the rank sends",
               onRanks(2, [](Rank& rank) {
                 const DevicePointer x = rank.gpu.allocate(kBytes);
                 rank.expect(rank.allReduce(x, x, kCount), "ncclAllReduce");
                 rank.synchronize();
               }));
  expectReport("reads no allocation has the address", onRanks(2, [](Rank& rank) {
                 const DevicePointer x = rank.buffer(kOnes);
                 const DevicePointer y = rank.gpu.allocate(kBytes);
                 rank.gpu.expect(rank.gpu.memoryFree(x), "cuMemFree");
                 rank.expect(rank.allReduce(x, y, kCount), "ncclAllReduce");
                 rank.synchronize();
               }));
  expectReport(
      "writes bytes 0 to 64 of the 32 bytes of cuMemAlloc.*as what the rank receives", onRanks(2, [](Rank& rank) {
        const DevicePointer x = rank.buffer(kOnes);
        const DevicePointer y = rank.gpu.allocate(kBytes);
        rank.expect(
            rank.nccl.allGather(bufferAt(x), bufferAt(y), kCount, ElementType::Float, rank.communicator, rank.stream),
            "ncclAllGather");
        rank.synchronize();
      }));
}

// -- with the work of other ranks -------------------------------------------------------------------------------------

// Both ranks have one device. Each fills the buffer, the first before the call and the second after it. No thread waits for work before all is
// enqueued: what it knows then, all threads of the process do.
SimulatedProgram acrossRanks(int first, const std::function<Result(Rank&, DevicePointer)>& call) {
  auto rendezvous = std::make_shared<Rendezvous>(2);
  auto isEnqueued = std::make_shared<Rendezvous>(2);
  auto shared = std::make_shared<DevicePointer>();
  return onThreads(2, [=](int number, const nccl::UniqueId& id) {
    Rank rank(number, 2, id);
    const DevicePointer own = rank.buffer(kOnes);
    if (number == first) {
      *shared = rank.gpu.allocate(kBytes);
    }
    rendezvous->wait();
    if (number == first) {
      rank.gpu.expect(rank.gpu.fillAsync(*shared, 1, kBytes, rank.stream), "fill");
    }
    rank.expect(call(rank, own), "the call");
    if (number != first) {
      rank.gpu.expect(rank.gpu.fillAsync(*shared, 2, kBytes, rank.stream), "fill");
    }
    isEnqueued->wait();
    rank.gpu.expect(rank.gpu.contextSynchronize(), "synchronize");
  });
}

class CollectiveOrderAcrossRanks : public CollectiveTest {
 protected:
  CollectiveOrderAcrossRanks() : CollectiveTest(1) {}
};

TEST_F(CollectiveOrderAcrossRanks, AReductionComesAfterAllRanks) {
  const auto allReduce = [](Rank& rank, DevicePointer x) { return rank.allReduce(x, x, kCount); };
  expectFine(acrossRanks(0, allReduce));
  expectFine(acrossRanks(1, allReduce));
  expectReport(kRace, acrossRanks(0, [](Rank& rank, DevicePointer) { return rank.allReduce(0, 0, 0); }));
}

TEST_F(CollectiveOrderAcrossRanks, ABroadcastComesAfterItsRoot) {
  const auto broadcast = [](Rank& rank, DevicePointer x) { return rank.broadcast(x, x, kCount, 0); };
  expectFine(acrossRanks(0, broadcast));
  expectReport(kRace, acrossRanks(1, broadcast));  // the root does not wait for the others
}

TEST_F(CollectiveOrderAcrossRanks, AReduceComesAfterTheOthersOnItsRoot) {
  const auto reduce = [](Rank& rank, DevicePointer x) {
    return rank.nccl.reduce(bufferAt(x), bufferAt(x), kCount, ElementType::Float, ReduceOperation::Sum, 0,
                            rank.communicator, rank.stream);
  };
  expectFine(acrossRanks(1, reduce));
  expectReport(kRace, acrossRanks(0, reduce));
}

TEST_F(CollectiveOrderAcrossRanks, AReceiverComesAfterTheSender) {
  const auto transfer = [](Rank& rank, DevicePointer x) {
    return rank.number == 0 ? rank.send(x, kCount, 1) : rank.receive(x, kCount, 0);
  };
  expectFine(acrossRanks(0, transfer));
  expectReport(kRace, acrossRanks(1, transfer));  // a sender may end before the receiver comes
}

// What waits for an event on one rank is after the work of the others, which is posted later.
TEST_F(CollectiveOrderAcrossRanks, HoldsForEventsThatAreRecordedBeforeThePeersCome) {
  set("SIMGPU_NCCL_WAIT", "0");
  const auto program = [](bool waits) {
    auto rendezvous = std::make_shared<Rendezvous>(2);
    auto isWaitedFor = std::make_shared<Rendezvous>(2);
    auto shared = std::make_shared<DevicePointer>();
    return onThreads(2, [=](int number, const nccl::UniqueId& id) {
      Rank rank(number, 2, id);
      const DevicePointer x = rank.buffer(kOnes);
      if (number == 1) {
        *shared = rank.gpu.allocate(kBytes);
      }
      rendezvous->wait();
      if (number == 1) {
        isWaitedFor->wait();
        rank.gpu.expect(rank.gpu.fillAsync(*shared, 1, kBytes, rank.stream), "fill");
      }
      rank.expect(rank.allReduce(x, x, kCount), "ncclAllReduce");
      if (number == 0) {
        const cuda::Stream other = rank.gpu.stream();
        const cuda::Event event = rank.gpu.event();
        rank.gpu.expect(rank.gpu.eventRecord(event, rank.stream), "record");
        if (waits) {
          rank.gpu.expect(rank.gpu.streamWaitEvent(other, event, 0), "wait");
        }
        rank.gpu.expect(rank.gpu.fillAsync(*shared, 2, kBytes, other), "fill");
        isWaitedFor->wait();
      }
      rank.gpu.expect(rank.gpu.contextSynchronize(), "synchronize");
    });
  };
  expectFine(program(true));
  expectReport(kRace, program(false));
}

TEST_F(CollectiveOrderAcrossRanks, NoRankWaitsForTheEndOfAnother) {
  auto rendezvous = std::make_shared<Rendezvous>(2);
  auto isEnqueued = std::make_shared<Rendezvous>(2);
  auto other = std::make_shared<DevicePointer>();
  expectReport(kRace, onThreads(2, [=](int number, const nccl::UniqueId& id) {
                 Rank rank(number, 2, id);
                 const DevicePointer x = rank.buffer(kOnes);
                 if (number == 1) {
                   *other = x;
                 }
                 rendezvous->wait();
                 rank.expect(rank.allReduce(x, x, kCount), "ncclAllReduce");
                 if (number == 0) {  // what rank 1 receives
                   rank.gpu.expect(rank.gpu.fillAsync(*other, 0, kBytes, rank.stream), "fill");
                 }
                 isEnqueued->wait();
                 rank.gpu.expect(rank.gpu.contextSynchronize(), "synchronize");
               }));
}

// -- groups -----------------------------------------------------------------------------------------------------------

TEST_F(CollectiveOrder, OfCallsInAGroupIsNone) {
  const auto program = [](bool inGroup) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      const DevicePointer y = rank.buffer(kOnes);
      if (inGroup) {
        rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
      }
      rank.expect(rank.allReduce(x, y, kCount), "ncclAllReduce");
      rank.expect(rank.allReduce(y, x, kCount), "ncclAllReduce");
      if (inGroup) {
        rank.expect(rank.nccl.groupEnd(), "ncclGroupEnd");
      }
      rank.synchronize();
    });
  };
  expectFine(program(false));
  expectReport(kRace, program(true));
}

TEST_F(CollectiveOrder, OfAGroupIsOneForAllItsStreams) {
  const auto program = [](bool inGroup) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      const DevicePointer y = rank.buffer(kOnes);
      const DevicePointer z = rank.buffer(kOnes);
      const cuda::Stream other = rank.gpu.stream();
      rank.gpu.expect(rank.gpu.fillAsync(z, 1, kBytes, other), "fill");
      if (inGroup) {
        rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
      }
      rank.expect(rank.allReduce(x, x, kCount), "ncclAllReduce");
      rank.expect(rank.nccl.allReduce(bufferAt(y), bufferAt(y), kCount, ElementType::Float, ReduceOperation::Sum,
                                      rank.communicator, other),
                  "ncclAllReduce");
      if (inGroup) {
        rank.expect(rank.nccl.groupEnd(), "ncclGroupEnd");
      }
      rank.gpu.expect(rank.gpu.fillAsync(z, 2, kBytes, rank.stream), "fill");
      rank.gpu.expect(rank.gpu.contextSynchronize(), "synchronize");
    });
  };
  expectFine(program(true));
  expectReport(kRace, program(false));
}

// -- calls that belong together ---------------------------------------------------------------------------------------

using CallOfRank = std::function<Result(Rank&, void*)>;

// Rank 0 makes the first call, the other ranks the second one.
SimulatedProgram differently(const CallOfRank& first, const CallOfRank& second) {
  return onRanks(3, [=](Rank& rank) {
    const DevicePointer x = rank.buffer(kOnes);
    rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
    rank.expect((rank.number == 0 ? first : second)(rank, bufferAt(x)), "the call");
    rank.synchronize();
  });
}

CallOfRank allReduceOf(size_t count, ElementType type = ElementType::Float,
                       ReduceOperation operation = ReduceOperation::Sum) {
  return [=](Rank& rank, void* x) {
    return rank.nccl.allReduce(x, x, count, type, operation, rank.communicator, rank.stream);
  };
}

CallOfRank broadcastFrom(int root) {
  return [=](Rank& rank, void* x) {
    return rank.nccl.broadcast(x, x, 2, ElementType::Float, root, rank.communicator, rank.stream);
  };
}

TEST_F(CollectiveOrder, OfCallsIsThatOfAllRanks) {
  const std::string call = "call 2 of the communicator differs among its ranks: ";
  expectFine(differently(allReduceOf(2), allReduceOf(2)));
  expectReport(call + "the count is . in ncclAllReduce of rank . of 3 but . in ncclAllReduce of rank .",
               differently(allReduceOf(2), allReduceOf(3)));
  expectReport(call + "the type is (2|7) in ncclAllReduce of rank .",
               differently(allReduceOf(2), allReduceOf(2, ElementType::Int32)));
  expectReport(call + "the operation is (0|2) in",
               differently(allReduceOf(2), allReduceOf(2, ElementType::Float, ReduceOperation::Max)));
  expectReport(call + "the root is (0|1) in ncclBroadcast of rank .", differently(broadcastFrom(0), broadcastFrom(1)));
  expectReport(call + "nccl(AllReduce|Broadcast) of rank . of 3 meets nccl(AllReduce|Broadcast) of rank .",
               differently(allReduceOf(2), broadcastFrom(0)));
}

TEST_F(CollectiveOrder, OfTransfersIsThatOfBothRanks) {
  const auto program = [](size_t sent, size_t received) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      rank.expect(rank.number == 0 ? rank.send(x, sent, 1) : rank.receive(x, received, 0), "the call");
      rank.synchronize();
    });
  };
  expectFine(program(3, 3));
  expectReport("transfer 1 between two ranks differs: the count is (3|4) in nccl(Send|Recv) of rank . of 2",
               program(3, 4));
}

// -- peers that do not come -------------------------------------------------------------------------------------------

// The call of one rank alone, whose other rank comes to the communicator and to no call
SimulatedProgram alone(const RankProgram& program) {
  auto rendezvous = std::make_shared<Rendezvous>(2);
  return onThreads(2, [=](int number, const nccl::UniqueId& id) {
    Rank rank(number, 2, id, {.isDestroyed = false});
    if (number == 0) {
      program(rank);
    }
    rendezvous->wait();
    require(number == 0 || rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
  });
}

TEST_F(CollectiveOrder, ACallWithoutPeersHangsUntilItIsAborted) {
  set("SIMGPU_NCCL_WAIT", "0");
  expectFine(alone([](Rank& rank) {
    const DevicePointer x = rank.buffer(kOnes);
    rank.expect(rank.allReduce(x, x, kCount), "ncclAllReduce");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    require(rank.gpu.streamQuery(rank.stream) == cuda::Result::NotReady, "the call waits for its peer");
    require(rank.state() == Result::Success, "nobody knows that the peer does not come");
    std::atomic<bool> isSynchronized = false;
    std::jthread waiting([&] {
      Simulated gpu;
      gpu.expect(gpu.streamSynchronize(rank.stream), "cuStreamSynchronize");
      isSynchronized = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    require(!isSynchronized, "and so does who waits for the stream");
    require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
    waiting.join();
    require(rank.values<float>(x, kCount) == kOnes, "the call has never happened");
  }));
}

TEST_F(CollectiveOrder, ASendWithoutAReceiverHangs) {
  set("SIMGPU_NCCL_WAIT", "0");
  expectFine(alone([](Rank& rank) {
    rank.expect(rank.send(rank.buffer(kOnes), kCount, 1), "ncclSend");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    require(rank.gpu.streamQuery(rank.stream) == cuda::Result::NotReady, "the call waits for its peer");
    require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
    rank.synchronize();
  }));
}

// The first call of a communicator may keep its thread until the peers come.
TEST_F(CollectiveOrder, TheFirstCallMayWaitForItsPeers) {
  set("SIMGPU_NCCL_WAIT", "100");
  auto hasPosted = std::make_shared<std::atomic<bool>>(false);
  expectFine(onRanks(2, [=](Rank& rank) {
    const DevicePointer x = rank.buffer(kOnes);
    if (rank.number == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      require(!*hasPosted, "rank 0 is in its call");
    }
    rank.expect(rank.allReduce(x, x, kCount), "ncclAllReduce");
    *hasPosted = true;
    rank.synchronize();
  }));
}

// -- ranks that do not block ------------------------------------------------------------------------------------------

TEST_F(CollectiveOrder, AStreamIsLeftAloneWhileACallIsInProgress) {
  set("SIMGPU_NCCL_WAIT", "100");
  const auto program = [](bool polls) {
    return onRanks(2,
                   [=](Rank& rank) {
                     const DevicePointer x = rank.buffer(kOnes);
                     const Result result = rank.allReduce(x, x, kCount);
                     require(result == Result::InProgress, "the call is in progress");
                     if (polls) {
                       rank.expect(result, "ncclAllReduce");
                     }
                     rank.gpu.expect(rank.gpu.fillAsync(x, 0, kBytes, rank.stream), "fill");
                     rank.synchronize();
                   },
                   {.isBlocking = false});
  };
  expectFine(program(true));
  expectReport("cuMemsetD8Async.*is enqueued while ncclAllReduce of rank . of 2 is in progress", program(false));
  expectReport("cuStreamSynchronize: ncclAllReduce of rank . of 2 is in progress on the stream",
               onRanks(2,
                       [](Rank& rank) {
                         const DevicePointer x = rank.buffer(kOnes);
                         rank.allReduce(x, x, kCount);
                         rank.synchronize();
                       },
                       {.isBlocking = false}));
}

}  // namespace
}  // namespace meshfuse::collective_order
