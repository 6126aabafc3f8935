// Communicators of the simulated NCCL: how they are made, divided and ended, and the states between.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "simgpu/collectives.h"

namespace meshfuse::communicators {
namespace {

using cuda::DevicePointer;
using nccl::Communicator;
using nccl::Config;
using nccl::Result;

const std::vector<float> kOnes(4, 1);

void sleepFor(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// On the current device
struct Caller {
  Result create(int ranks, const nccl::UniqueId& id, int rank, int blocking = Config::kDefault) {
    Config config;
    config.blocking = blocking;
    return nccl.create(&communicator, ranks, id, rank, &config);
  }
  Result state() const {
    Result state{};
    require(nccl.communicatorError(communicator, &state) == Result::Success, "ncclCommGetAsyncError");
    return state;
  }
  Result stateInTheEnd() const {
    Result now = state();
    while (now == Result::InProgress) {
      now = state();
    }
    return now;
  }
  void abort() { require(nccl.abort(communicator) == Result::Success, "ncclCommAbort"); }

  Simulated gpu;
  NcclSimulated nccl;
  Communicator communicator = nullptr;
};

class Communicators : public CollectiveTest {};

// -- how they are made ------------------------------------------------------------------------------------------------

TEST_F(Communicators, AreMadeWhenAllRanksHaveCome) {
  auto hasCome = std::make_shared<std::atomic<bool>>(false);
  expectFine(onThreads(2, [=](int number, const nccl::UniqueId& id) {
    if (number == 1) {
      sleepFor(20);
      *hasCome = true;
    }
    const Rank rank(number, 2, id);
    require(*hasCome, "both ranks have come");
  }));
}

TEST_F(Communicators, ThatDoNotBlockAreInProgressUntilAllRanksHaveCome) {
  auto rendezvous = std::make_shared<Rendezvous>(2);
  expectFine(onThreads(2, [=](int number, const nccl::UniqueId& id) {
    Caller c;
    if (number == 1) {
      rendezvous->wait();
    }
    require(c.create(2, id, number, 0) == Result::InProgress, "ncclCommInitRankConfig does not block");
    if (number == 0) {
      sleepFor(10);
      require(c.state() == Result::InProgress, "rank 1 has not come");
      rendezvous->wait();
    }
    require(c.stateInTheEnd() == Result::Success, "both ranks have come");
    require(c.nccl.finalize(c.communicator) != Result::InvalidUsage, "ncclCommFinalize");
    require(c.stateInTheEnd() == Result::Success, "both ranks are finalized");
    require(c.nccl.destroy(c.communicator) == Result::Success, "ncclCommDestroy");
  }));
}

TEST_F(Communicators, InProgressRefuseCalls) {
  expectFine([](Simulated&) {
    Caller c;
    require(c.create(2, uniqueId(), 0, 0) == Result::InProgress, "ncclCommInitRankConfig");
    require(c.nccl.finalize(c.communicator) == Result::InvalidUsage, "the communicator is in progress");
    require(c.state() == Result::InvalidUsage, "which is an error of the communicator");
    c.abort();
    require(c.create(2, uniqueId(), 0, 0) == Result::InProgress, "ncclCommInitRankConfig");
    Communicator part = nullptr;
    require(c.nccl.split(c.communicator, 0, 0, &part, nullptr) == Result::InvalidUsage, "it is in progress");
    require(part == nullptr, "there is no part");
    c.abort();
  });
}

TEST_F(Communicators, RefuseCallsUntilACallIsDone) {
  set("SIMGPU_NCCL_WAIT", "100");
  expectFine(onRanks(2,
                     [](Rank& rank) {
                       const DevicePointer x = rank.buffer(kOnes);
                       require(rank.allReduce(x, x, 4) == Result::InProgress, "ncclAllReduce does not block");
                       require(rank.allReduce(x, x, 4) == Result::InvalidUsage, "the first one is in progress");
                       require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
                     },
                     {.isBlocking = false, .isDestroyed = false}));
}

// -- wrong ranks, ids and configurations ------------------------------------------------------------------------------

TEST_F(Communicators, HaveEachRankOnce) {
  const auto results = [](int ranks, int second) {
    return onThreads(2, [=](int number, const nccl::UniqueId& id) {
      Caller c;
      const bool isRefused = ranks != 2 || second == 0;
      const Result result = number == 0 ? c.create(2, id, 0) : c.create(ranks, id, second);
      require(result == (isRefused ? Result::InvalidUsage : Result::Success), "both ranks are told");
      require((c.communicator == nullptr) == isRefused, "there is a communicator, or there is none");
      if (!isRefused) {
        c.nccl.destroy(c.communicator);
      }
    });
  };
  expectFine(results(2, 1));
  expectFine(results(2, 0));  // twice rank 0
  expectFine(results(3, 2));  // 2 ranks and 3
}

TEST_F(Communicators, AreNotMadeOfWrongArguments) {
  expectFine([](Simulated& gpu) {
    Caller c;
    const nccl::UniqueId id = uniqueId();
    require(c.create(0, id, 0) == Result::InvalidArgument, "no ranks");
    require(c.create(2, id, 2) == Result::InvalidArgument, "rank 2 of 2");
    require(c.create(2, id, -1) == Result::InvalidArgument, "rank -1");
    require(c.create(1, nccl::UniqueId{}, 0) == Result::InvalidArgument, "zeros are no id");
    nccl::UniqueId later = id;
    later.bytes[20] = 1;
    require(c.create(1, later, 0) == Result::InvalidArgument, "nobody has got this id");
    require(c.nccl.create(nullptr, 1, id, 0, nullptr) == Result::InvalidArgument, "no place for the communicator");
    require(c.nccl.uniqueId(nullptr) == Result::InvalidArgument, "no place for the id");
    cuda::Context first = nullptr;
    cuda::Context second = nullptr;
    gpu.expect(gpu.contextPop(&first), "cuCtxPopCurrent");
    gpu.expect(gpu.contextPop(&second), "cuCtxPopCurrent");
    require(c.create(1, id, 0) == Result::CudaError, "no context is current");
    gpu.expect(gpu.contextPush(second), "cuCtxPushCurrent");
    require(c.create(1, id, 0) == Result::Success, "one rank");
    require(c.nccl.destroy(c.communicator) == Result::Success, "ncclCommDestroy");
    require(c.create(1, id, 0) == Result::InvalidUsage, "the id has been used");
  });
}

TEST_F(Communicators, HaveAConfigurationThatIsInitialized) {
  expectFine([](Simulated&) {
    Caller c;
    const auto resultWith = [&](const std::function<void(Config&)>& change) {
      Config config;
      change(config);
      const Result result = c.nccl.create(&c.communicator, 1, uniqueId(), 0, &config);
      if (result == Result::Success) {
        c.nccl.destroy(c.communicator);
      }
      return result;
    };
    const auto expectWrong = [&](const std::function<void(Config&)>& change) {
      require(resultWith(change) == Result::InvalidArgument, "the configuration is refused");
    };
    require(resultWith([](Config&) {}) == Result::Success, "the default");
    require(resultWith([](Config& o) { o.network = "Socket"; }) == Result::Success, "a network");
    require(resultWith([](Config& o) { o.splitShare = 1; }) == Result::Success, "shared resources");
    expectWrong([](Config& o) { o.magic = 0; });
    expectWrong([](Config& o) { o.size = 0; });
    expectWrong([](Config& o) { o.blocking = 2; });
    expectWrong([](Config& o) { o.clusterSize = 9; });
    expectWrong([](Config& o) { o.leastBlocks = 0; });
    expectWrong([](Config& o) { o.splitShare = -1; });
    expectWrong([](Config& o) {
      o.leastBlocks = 8;
      o.mostBlocks = 4;
    });
  });
}

TEST_F(Communicators, ShareADeviceUnlessItIsForbidden) {
  set("SIMGPU_DEVICES", "1");
  const auto program = [](Result right) {
    return onThreads(2, [=](int number, const nccl::UniqueId& id) {
      Caller c;
      require(c.create(2, id, number) == right, "two ranks on one device");
      if (right == Result::Success) {
        c.nccl.destroy(c.communicator);
      }
    });
  };
  expectFine(program(Result::Success));
  set("SIMGPU_NCCL_SHARED_DEVICE", "0");
  expectFine(program(Result::InvalidUsage));
}

// -- parts ------------------------------------------------------------------------------------------------------------

// The sum over the part: which ranks are in it
float sumOverPart(Rank& rank, Communicator part) {
  const DevicePointer x = rank.buffer(std::vector<float>{static_cast<float>(1 << rank.number)});
  Result result = rank.nccl.allReduce(bufferAt(x), bufferAt(x), 1, nccl::ElementType::Float, nccl::ReduceOperation::Sum,
                                      part, rank.stream);
  while (result == Result::InProgress) {
    require(rank.nccl.communicatorError(part, &result) == Result::Success, "ncclCommGetAsyncError");
  }
  require(result == Result::Success, "ncclAllReduce");
  return rank.values<float>(x, 1)[0];
}

TEST_F(Communicators, AreSplitByColors) {
  for (const bool isBlocking : {true, false}) {
    expectFine(onRanks(4,
                       [](Rank& rank) {
                         Communicator part = nullptr;
                         const int color = rank.number == 3 ? nccl::kNoColor : rank.number % 2;
                         rank.expect(rank.nccl.split(rank.communicator, color, 0, &part, nullptr), "ncclCommSplit");
                         require((part == nullptr) == (color == nccl::kNoColor), "a rank without a color gets no part");
                         if (part != nullptr) {
                           require(sumOverPart(rank, part) == (rank.number == 1 ? 2 : 5),
                                   "the part has the ranks of its color");
                           require(rank.nccl.destroy(part) == Result::Success, "ncclCommDestroy");
                         }
                       },
                       {.isBlocking = isBlocking}));
  }
}

TEST_F(Communicators, HavePartsInTheOrderOfKeysThenOfRanks) {
  expectFine(onRanks(3, [](Rank& rank) {
    Communicator part = nullptr;
    constexpr int kKeys[] = {5, -1, 5};  // rank 1, then 0, then 2
    rank.expect(rank.nccl.split(rank.communicator, 7, kKeys[rank.number], &part, nullptr), "ncclCommSplit");
    const DevicePointer x = rank.buffer(std::vector<float>{static_cast<float>(rank.number)});
    const DevicePointer all = rank.gpu.allocate(12);
    rank.expect(rank.nccl.allGather(bufferAt(x), bufferAt(all), 1, nccl::ElementType::Float, part, rank.stream),
                "ncclAllGather");
    require(rank.values<float>(all, 3) == std::vector<float>{1, 0, 2}, "the order of the part");
    require(rank.nccl.destroy(part) == Result::Success, "ncclCommDestroy");
  }));
}

TEST_F(Communicators, AreSplitWhenTheirCallsHaveEnded) {
  const auto program = [](bool waits) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(kOnes);
      rank.expect(rank.allReduce(x, x, 4), "ncclAllReduce");
      if (waits) {
        rank.synchronize();
      }
      Communicator part = nullptr;
      rank.expect(rank.nccl.split(rank.communicator, 0, 0, &part, nullptr), "ncclCommSplit");
      rank.nccl.destroy(part);
    });
  };
  expectFine(program(true));
  expectReport("ncclCommSplit of rank . of 2: a call of the communicator is outstanding", program(false));
}

TEST_F(Communicators, AreSplitByAllRanks) {
  expectReport("differs among its ranks: nccl(AllReduce|CommSplit) of rank . of 2 meets nccl(AllReduce|CommSplit)",
               onRanks(2, [](Rank& rank) {
                 Communicator part = nullptr;
                 const DevicePointer x = rank.buffer(kOnes);
                 if (rank.number == 0) {
                   rank.nccl.split(rank.communicator, 0, 0, &part, nullptr);
                 } else {
                   rank.allReduce(x, x, 4);
                 }
                 rank.synchronize();
               }));
  expectFine(onRanks(1, [](Rank& rank) {
    Communicator part = nullptr;
    require(rank.nccl.split(rank.communicator, -2, 0, &part, nullptr) == Result::InvalidArgument, "no color");
    require(rank.nccl.split(rank.communicator, 0, 0, nullptr, nullptr) == Result::InvalidArgument, "no place");
  }));
}

// -- how they end -----------------------------------------------------------------------------------------------------

TEST_F(Communicators, AreFinalizedWhenAllRanksAre) {
  auto hasCome = std::make_shared<std::atomic<bool>>(false);
  expectFine(onRanks(2,
                     [=](Rank& rank) {
                       if (rank.number == 1) {
                         sleepFor(20);
                         *hasCome = true;
                       }
                       require(rank.nccl.finalize(rank.communicator) == Result::Success, "ncclCommFinalize");
                       require(*hasCome, "both ranks are finalized");
                       require(rank.nccl.destroy(rank.communicator) == Result::Success, "ncclCommDestroy");
                     },
                     {.isDestroyed = false}));
}

TEST_F(Communicators, AreNotDestroyedWhileTheyAreFinalized) {
  const auto program = [](bool polls) {
    return onRanks(2,
                   [=](Rank& rank) {
                     const Result result = rank.nccl.finalize(rank.communicator);
                     require(result == Result::InProgress, "ncclCommFinalize does not block");
                     if (polls) {
                       rank.expect(result, "ncclCommFinalize");
                     }
                     require(rank.nccl.destroy(rank.communicator) == Result::Success, "ncclCommDestroy");
                   },
                   {.isBlocking = false, .isDestroyed = false});
  };
  expectFine(program(true));
  expectReport("ncclCommDestroy: the communicator is being finalized", program(false));
}

TEST_F(Communicators, RefuseCallsWhenTheyAreFinalized) {
  expectFine(onRanks(2,
                     [](Rank& rank) {
                       const DevicePointer x = rank.buffer(kOnes);
                       require(rank.nccl.finalize(rank.communicator) == Result::Success, "ncclCommFinalize");
                       require(rank.allReduce(x, x, 4) == Result::InvalidUsage, "the communicator is finalized");
                       require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
                     },
                     {.isDestroyed = false}));
}

TEST_F(Communicators, AreNotUsedAfterTheirEnd) {
  const auto program = [](bool isDestroyed) {
    return onRanks(1,
                   [=](Rank& rank) {
                     const DevicePointer x = rank.buffer(kOnes);
                     (isDestroyed ? rank.nccl.destroy : rank.nccl.abort)(rank.communicator);
                     rank.allReduce(x, x, 4);
                   },
                   {.isDestroyed = false});
  };
  expectReport("ncclAllReduce:.*the communicator has been destroyed or aborted", program(true));
  expectReport("ncclAllReduce:.*the communicator has been destroyed or aborted", program(false));
  expectReport("ncclCommDestroy:.*the handle is no communicator", [](Simulated&) {
    int other = 0;
    NcclSimulated().destroy(reinterpret_cast<Communicator>(&other));
  });
}

TEST_F(Communicators, AreAbortedByAllRanksOrNone) {
  auto rendezvous = std::make_shared<Rendezvous>(2);
  const auto program = [=](bool all) {
    return onRanks(2,
                   [=](Rank& rank) {
                     if (rank.number == 0 || all) {
                       require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
                     }
                     rendezvous->wait();
                     if (rank.number == 1 && !all) {
                       rank.nccl.destroy(rank.communicator);
                     }
                   },
                   {.isDestroyed = false});
  };
  expectFine(program(true));
  expectReport("ncclCommDestroy: it would wait for rank 0, which has been aborted", program(false));
  const auto late = [](Rank& rank) {
    if (rank.number == 1) {
      sleepFor(20);
      rank.nccl.abort(rank.communicator);
    } else {
      rank.nccl.destroy(rank.communicator);
    }
  };
  expectReport("ncclCommAbort: rank 0 waits in ncclCommDestroy for this one", onRanks(2, late, {.isDestroyed = false}));
}

TEST_F(Communicators, AreUsedByOneThreadAtATime) {
  set("SIMGPU_NCCL_WAIT", "100");
  expectReport("ncclCommAbort:.*another thread is in a call on the communicator",
               onRanks(2,
                       [](Rank& rank) {
                         if (rank.number == 1) {
                           sleepFor(1000);  // the report comes before
                           return;
                         }
                         std::jthread aborting([&] {
                           sleepFor(20);
                           rank.nccl.abort(rank.communicator);
                         });
                         const DevicePointer x = rank.buffer(kOnes);
                         rank.allReduce(x, x, 4);  // the first call waits for the peers
                       },
                       {.isDestroyed = false}));
}

// -- what a process leaves --------------------------------------------------------------------------------------------

TEST_F(Communicators, ThatAProcessLeavesAreNamed) {
  for (const bool isDestroyed : {true, false}) {
    std::string file = "/tmp/simgpu_left_XXXXXX";
    const int descriptor = mkstemp(file.data());
    ASSERT_GE(descriptor, 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(descriptor, 2);
      onRanks(1, [](Rank&) {}, {.isDestroyed = isDestroyed})(*std::make_unique<Simulated>());
      std::_Exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    // The engine says it when it sees the end of the process.
    std::string text;
    for (int i = 0; i < (isDestroyed ? 10 : 200) && text.empty(); i++) {
      sleepFor(10);
      std::ostringstream all;
      all << std::ifstream(file).rdbuf();
      text = all.str();
    }
    EXPECT_EQ(text.find("ended without freeing the communicator of rank 0 of 1") != std::string::npos, !isDestroyed)
        << text;
    close(descriptor);
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace meshfuse::communicators
