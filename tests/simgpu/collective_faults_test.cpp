// Errors of the simulated NCCL on demand: calls that fail, calls that fail while they run, and processes that end.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "simgpu/collectives.h"

namespace meshfuse::collective_faults {
namespace {

using cuda::DevicePointer;
using nccl::Result;

const std::vector<float> kOnes(4, 1);
constexpr RankOptions kAborted{.isDestroyed = false};

class CollectiveFaults : public CollectiveTest {
 protected:
  CollectiveFaults() { set("SIMGPU_NCCL_WAIT", "0"); }
};

void abort(const Rank& rank) {
  require(rank.nccl.abort(rank.communicator) == Result::Success, "ncclCommAbort");
  rank.synchronize();  // nothing is left
}

TEST_F(CollectiveFaults, TheSecondCallFails) {
  set("SIMGPU_FAULT", "nccl:2");
  expectFine(onRanks(
      1,
      [](Rank& rank) {
        const DevicePointer x = rank.buffer(kOnes);
        rank.expect(rank.allReduce(x, x, 4), "ncclAllReduce");
        require(rank.allReduce(x, x, 4) == Result::SystemError, "the second call fails");
        require(rank.state() == Result::SystemError, "the communicator has the error");
        require(rank.allReduce(x, x, 4) == Result::SystemError, "and keeps it");
        rank.synchronize();  // the second call is not on the stream
        abort(rank);
      },
      kAborted));
}

TEST_F(CollectiveFaults, ACallOfAGroupFailsAtItsEnd) {
  set("SIMGPU_FAULT", "nccl:1");
  expectFine(onRanks(
      1,
      [](Rank& rank) {
        const DevicePointer x = rank.buffer(kOnes);
        rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
        rank.expect(rank.allReduce(x, x, 4), "ncclAllReduce");
        require(rank.nccl.groupEnd() == Result::SystemError, "the group fails");
        require(rank.state() == Result::SystemError, "the communicator has the error");
        abort(rank);
      },
      kAborted));
}

TEST_F(CollectiveFaults, ACallFailsWhileItRuns) {
  set("SIMGPU_FAULT", "nccl-async:2");
  for (const bool isBlocking : {true, false}) {
    expectFine(onRanks(1,
                       [](Rank& rank) {
                         const DevicePointer x = rank.buffer(kOnes);
                         rank.expect(rank.allReduce(x, x, 4), "ncclAllReduce");
                         Result result = rank.allReduce(x, x, 4);
                         require(result == Result::Success || result == Result::InProgress,
                                 "the second call is posted");
                         while (result == Result::Success || result == Result::InProgress) {
                           result = rank.state();
                         }
                         require(result == Result::RemoteError, "it gives an error later");
                         std::this_thread::sleep_for(std::chrono::milliseconds(5));
                         require(rank.gpu.streamQuery(rank.stream) == cuda::Result::NotReady, "and does not end");
                         abort(rank);
                         require(rank.values<float>(x, 4) == kOnes, "it has not happened");
                       },
                       {.isBlocking = isBlocking, .isDestroyed = false}));
  }
}

TEST_F(CollectiveFaults, ACommunicatorWithAnErrorIsAborted) {
  set("SIMGPU_FAULT", "nccl:1");
  const auto program = [](Rank& rank) {
    rank.allReduce(0, 0, 0);
    rank.nccl.destroy(rank.communicator);
  };
  expectReport("ncclCommDestroy: the communicator has an error: ncclCommAbort ends it", onRanks(1, program, kAborted));
}

TEST_F(CollectiveFaults, MemoryRunsOut) {
  set("SIMGPU_FAULT", "allocate:1");
  expectFine([](Simulated&) {
    void* memory = nullptr;
    require(NcclSimulated().memoryAllocate(&memory, 8) == Result::CudaError, "ncclMemAlloc fails");
  });
}

// A process that ends without a word. Its peer posts a call, before it or after.
SimulatedProgram withDeadPeer(const RankProgram& program) {
  return [=](Simulated&) {
    const nccl::UniqueId id = uniqueId();
    int ends[2];
    require(pipe(ends) == 0, "a pipe");
    const pid_t child = fork();
    Rank rank(child == 0 ? 1 : 0, 2, id, kAborted);
    char byte = 0;
    if (child == 0) {
      _exit(read(ends[0], &byte, 1) == 1 ? 3 : 4);
    }
    require(write(ends[1], &byte, 1) == 1, "the peer ends");
    const DevicePointer x = rank.buffer(kOnes);
    const Result result = rank.allReduce(x, x, 4);
    require(result == Result::Success || result == Result::RemoteError, "the call is posted, or the end is known");
    int status = 0;
    require(waitpid(child, &status, 0) == child, "the peer has ended");
    program(rank);
    abort(rank);
  };
}

class DeadPeers : public CollectiveFaults {
 protected:
  DeadPeers() {
    std::string job = "/tmp/simgpu_job_XXXXXX";
    folder_ = mkdtemp(job.data()) == nullptr ? "" : job;
    set("SIMGPU_JOB", folder_);
  }
  ~DeadPeers() override { std::filesystem::remove_all(folder_); }

 private:
  std::string folder_;
};

TEST_F(DeadPeers, GiveAnError) {
  expectFine(withDeadPeer([](Rank& rank) {
    while (rank.state() == Result::Success) {
    }
    require(rank.state() == Result::RemoteError, "a process has ended");
  }));
}

TEST_F(DeadPeers, OrSaySoInNoWay) {
  set("SIMGPU_FAULT", "nccl-silent");
  expectFine(withDeadPeer([](Rank& rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    require(rank.state() == Result::Success, "nobody knows of the end");
    require(rank.gpu.streamQuery(rank.stream) == cuda::Result::NotReady, "the call hangs");
  }));
}

}  // namespace
}  // namespace meshfuse::collective_faults
