// A rank with a GPU that fails, in each way in which it can: the other rank hears of it, says why, and goes on alone. The ranks are processes,
// the GPUs are simulated ones, whose calls fail on demand.
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "device/cuda/counting_device.h"
#include "host/executor.h"
#include "host/program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/processes.h"

namespace meshfuse {
namespace {

constexpr int kVictim = 1;
constexpr int kCallsBefore = 2;  // that succeed
constexpr int kMostCalls = 400;  // a failure that nobody notices ends the test
constexpr int64_t kWords = 10;
constexpr int64_t kMemory =
    64 << 20;  // bytes of each GPU: little, because all of it is written to when a rank takes it

// Rows of a table at indices, in parts on the ranks; a product with a matrix, a kernel, and a sum over all ranks.
std::unique_ptr<Fusion> program(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  TensorView* index = makeContigConcreteTensor({4 * ranks}, DataType::Int);
  TensorView* table = makeContigConcreteTensor({kWords, 8});
  TensorView* weight = makeContigConcreteTensor({16, 8});
  for (TensorView* tv : {index, table, weight}) {
    fusion->addInput(tv);
    tv->setDeviceMesh(mesh);
  }
  index->outer_split(0, ranks);
  index->axis(0)->parallelize(ParallelType::DIDx);
  TensorView* y = sum(relu(linear(embedding_fwd(index, table), weight)), {0});
  y->setDeviceMesh(mesh);
  fusion->addOutput(y);
  return fusion;
}

// A sum over all ranks, 8 KiB, beside a product of 16 KiB.
std::unique_ptr<Fusion> programWithALane(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  TensorView* parts = makeContigConcreteTensor({ranks, 64, 32});
  TensorView* other = makeContigConcreteTensor({64, 32});
  for (TensorView* tv : {parts, other}) {
    fusion->addInput(tv);
    tv->setDeviceMesh(mesh);
  }
  parts->outer_split(0, ranks);
  parts->axis(0)->parallelize(ParallelType::DIDx);
  TensorView* y = sum(relu(parts), {0});
  y->setDeviceMesh(mesh);
  fusion->addOutput(y);
  fusion->addOutput(linear(other, other));
  return fusion;
}

std::vector<Argument> arguments(DeviceId gpu, int64_t lastIndex = 3) {
  return {Tensor::of({0, 1, 2, static_cast<double>(lastIndex)}, {4}, DataType::Int).to(gpu),
          random({kWords, 8}, 1).to(gpu), random({16, 8}, 2).to(gpu)};
}

class GpuFailures : public testing::Test {
 protected:
  void SetUp() override {
    const char* const libraries = std::getenv("MESHFUSE_CUDA_LIBRARIES");
    if (libraries == nullptr || !std::filesystem::exists(std::string(libraries) + "/simgpu_engine")) {
      GTEST_SKIP() << "needs the simulated GPU, whose calls fail on demand: set MESHFUSE_CUDA_LIBRARIES";
    }
    std::string folder = "/tmp/simgpu_job_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    job_ = folder;
  }
  void TearDown() override {
    std::error_code gone;  // the engine may remove its socket at the same time
    std::filesystem::remove_all(job_, gone);
    std::filesystem::remove_all(job_);
  }
  const std::string& job() const { return job_; }

  // Of the process of a rank, before it uses its GPU.
  void joinJob() const {
    setenv("SIMGPU_JOB", job_.c_str(), 1);
    setenv("SIMGPU_DEVICES", "2", 1);
    setenv("SIMGPU_MEMORY", std::to_string(kMemory).c_str(), 1);
  }

  // A folder of the simulated libraries without NCCL.
  std::string librariesWithoutNccl() const {
    const std::filesystem::path libraries = std::getenv("MESHFUSE_CUDA_LIBRARIES");
    const std::filesystem::path without = std::filesystem::path(job_) / "without_nccl";
    if (!std::filesystem::create_directory(without)) {
      return without;
    }
    for (const std::string name : {"libcuda.so.1", "libnvrtc.so.13", "libcublasLt.so.13", "simgpu_engine", "kernels"}) {
      std::filesystem::create_symlink(libraries / name, without / name);
    }
    return without;
  }

  // How the victim fails.
  struct Failure {
    std::string fault = {};                     // of its process, see SIMGPU_FAULT
    std::function<void(int call)> before = {};  // what it does before a call
    int signal = 0;                             // that it gets
    bool hasWrongIndex = false;                 // in its later calls
    bool isStaged = false;                      // the ranks have no NCCL
    std::optional<Verify> verify = {};
  };

  // Two ranks call a program until one fails.
  std::vector<ProcessOutcome> outcomesOf(const Failure& failure) {
    const SharedCounters underWay(1);
    const std::string without = failure.isStaged ? librariesWithoutNccl() : "";
    RankProcesses processes(2, [&](int rank) {
      joinJob();
      if (failure.isStaged) {
        setenv("MESHFUSE_CUDA_LIBRARIES", without.c_str(), 1);
      }
      if (rank == kVictim && !failure.fault.empty()) {
        setenv("SIMGPU_FAULT", failure.fault.c_str(), 1);
      }
      return callUntilFailure(underWay, failure, rank == kVictim);
    });
    if (failure.signal == 0) {
      return processes.await();
    }
    while (!underWay.reached(0, 2 * kCallsBefore) && processes.age() < kPatience) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    processes.signal(kVictim, failure.signal);
    return processes.await({kVictim});
  }

  // Two ranks call a program; the victim has this environment variable. Their errors.
  std::vector<ProcessOutcome> outcomesWith(const char* variable, const std::string& value) {
    RankProcesses processes(2, [&](int rank) -> std::string {
      joinJob();
      if (rank == kVictim) {
        setenv(variable, value.c_str(), 1);
      }
      const std::unique_ptr<Communicator> world = openWorld({.deadline = kSilenceDeadline});
      FusionExecutorCache cache(program(2), {.communicator = world.get(), .threads = 1});
      try {
        (void)cache.runFusionWithInputs(arguments(DeviceId::cuda(rank)));
      } catch (const DeviceError& e) {
        return e.what();
      }
      return "no error";
    });
    return processes.await();
  }

  // Makes a world of the survivors and calls the program there. Says whether it could.
  static std::string goOn(Communicator& world, DeviceId gpu) {
    try {
      const Communicator::Survivors left = world.shrink();
      FusionExecutorCache after(program(std::ssize(left.oldRanks)), {.communicator = left.world.get(), .threads = 1});
      (void)after.runFusionWithInputs(arguments(gpu));
      return " | " + std::to_string(left.oldRanks.size()) + " of 2 ranks go on";
    } catch (const Error& e) {
      return std::string(" | no ranks go on: ") + e.what();
    }
  }

  // That both ranks have one error with these phrases; or that all but a victim that has gone have one, and the other rank went on.
  static void expectTold(const std::vector<ProcessOutcome>& outcomes, const std::vector<std::string>& phrases,
                         bool victimHasGone = false) {
    for (int rank = 0; rank < (victimHasGone ? kVictim : 2); rank++) {
      const std::string& text = outcomes[rank].text;
      EXPECT_TRUE(outcomes[rank].ended) << "rank " << rank << ": " << text;
      for (const std::string& phrase : phrases) {
        EXPECT_NE(text.find(phrase), std::string::npos)
            << "rank " << rank << " says: " << text << "\nexpected: " << phrase;
      }
    }
    EXPECT_NE(outcomes[0].text.find("rank 1"), std::string::npos) << outcomes[0].text;
    if (victimHasGone) {
      EXPECT_NE(outcomes[0].text.find("| 1 of 2 ranks go on"), std::string::npos) << outcomes[0].text;
    } else {
      EXPECT_EQ(outcomes[0].text.substr(0, outcomes[0].text.find(" | ")), outcomes[1].text);
    }
  }

 private:
  static std::string callUntilFailure(const SharedCounters& underWay, const Failure& failure, bool isVictim) {
    const std::unique_ptr<Communicator> world = openWorld({.deadline = kSilenceDeadline});
    const DeviceId gpu = DeviceId::cuda(world->rank());
    std::string error;
    {
      FusionExecutorCache cache(program(2), {.communicator = world.get(), .threads = 1, .verify = failure.verify});
      try {
        const std::vector<Argument> right = arguments(gpu);
        const std::vector<Argument> wrong = arguments(gpu, 1000);
        for (int call = 0; call < kMostCalls; call++) {
          if (isVictim && failure.before) {
            failure.before(call);
          }
          const bool isWrong = isVictim && failure.hasWrongIndex && call >= kCallsBefore;
          (void)cache.runFusionWithInputs(isWrong ? wrong : right);
          underWay.add(0);
        }
      } catch (const Error& e) {
        error = e.what();
      }
    }
    return isVictim ? error : error + goOn(*world, gpu);
  }

  std::string job_;
};

// The driver makes no graph for the victim, once: no rank replays what all would have to replay, and all go on.
TEST_F(GpuFailures, ARankGetsNoGraph) {
  RankProcesses processes(2, [&](int rank) -> std::string {
    joinJob();
    if (rank == kVictim) {
      setenv("SIMGPU_FAULT", "graph:1", 1);
    }
    const std::unique_ptr<Communicator> world = openWorld({.deadline = kSilenceDeadline});
    FusionExecutorCache cache(program(2), {.communicator = world.get(), .threads = 1});
    const std::vector<Argument> in = arguments(DeviceId::cuda(rank));
    std::vector<Tensor> out = cache.runFusionWithInputs(in);
    const std::vector<double> expected = out[0].toVector();
    QueueCalls calls;
    HostProgram host = *cache.hostProgram();
    host.device = countingDevice(host.device, calls);
    Binding binding(std::make_shared<const HostProgram>(host), *world);
    std::string said;
    for (int call = 0; call < 4; call++) {
      calls = {};
      binding.run(*world, in, out);
      said += fmt::format("{}{} ", calls.captures, calls.replays);
      if (out[0].toVector() != expected) {
        said += "wrong ";
      }
    }
    world->close();
    return said;
  });
  // the second call tries a graph of all steps, and makes one of the steps before the collective
  for (const ProcessOutcome& outcome : processes.await()) {
    EXPECT_EQ(outcome.text, "00 21 01 01 ");
  }
}

// A rank cannot know what the others have: all of them say it.
TEST_F(GpuFailures, ARankHasNoNccl) {
  for (const ProcessOutcome& outcome : outcomesWith("MESHFUSE_CUDA_LIBRARIES", librariesWithoutNccl())) {
    EXPECT_NE(outcome.text.find("have the versions 29900, 0 of NCCL, 0 for none; install one version for all of them"),
              std::string::npos)
        << outcome.text;
  }
}

TEST_F(GpuFailures, ARankHasAnotherVersionOfNccl) {
  for (const ProcessOutcome& outcome : outcomesWith("SIMGPU_NCCL_VERSION", "22809")) {
    EXPECT_NE(outcome.text.find("the ranks 0, 1 have the versions 29900, 22809 of NCCL"), std::string::npos)
        << outcome.text;
    EXPECT_NE(outcome.text.find("install one version for all of them"), std::string::npos) << outcome.text;
  }
}

// In the third call, which replays, the victim is killed before it launches its graph. The collective of its peer is under way then.
TEST_F(GpuFailures, ARankIsKilledBeforeItsGraph) {
  RankProcesses processes(2, [&](int rank) -> std::string {
    joinJob();
    const std::unique_ptr<Communicator> world = openWorld({.deadline = kSilenceDeadline});
    const DeviceId gpu = DeviceId::cuda(rank);
    std::string error;
    {
      FusionExecutorCache cache(program(2), {.communicator = world.get(), .threads = 1});
      const std::vector<Argument> in = arguments(gpu);
      std::vector<Tensor> out = cache.runFusionWithInputs(in);
      QueueCalls calls;
      HostProgram host = *cache.hostProgram();
      host.device = countingDevice(host.device, calls);
      Binding binding(std::make_shared<const HostProgram>(host), *world);
      try {
        for (int call = 0; call < 3; call++) {
          if (rank == kVictim && call == 2) {
            calls = {.leftOut = 1, .inPlace = [] { raise(SIGKILL); }};
          }
          binding.run(*world, in, out);
        }
      } catch (const Error& e) {
        error = e.what();
      }
      const int64_t step = std::ranges::find(host.steps, HostStepKind::Communicate, &Step::kind) - host.steps.begin();
      const std::string awaited = fmt::format("at step {} ({})", step, host.steps[step].name);
      error += error.find(awaited) != std::string::npos ? " | the step is named" : " | expected: " + awaited;
    }
    return error + goOn(*world, gpu);
  });
  const std::string text = processes.await({kVictim})[0].text;
  for (const std::string phrase : {"rank 1/2", "| the step is named", "| 1 of 2 ranks go on"}) {
    EXPECT_NE(text.find(phrase), std::string::npos) << text << "\nexpected: " << phrase;
  }
}

TEST_F(GpuFailures, ARankIsKilled) { expectTold(outcomesOf({.signal = SIGKILL}), {}, true); }

TEST_F(GpuFailures, ARankIsStopped) { expectTold(outcomesOf({.signal = SIGSTOP}), {"without a heartbeat"}, true); }

TEST_F(GpuFailures, ARankEnds) {
  const auto ends = [](int call) {
    if (call == kCallsBefore) {
      _exit(0);
    }
  };
  expectTold(outcomesOf({.before = ends}), {}, true);
}

TEST_F(GpuFailures, ARankThrows) {
  const auto throws = [](int call) { check(call < kCallsBefore, "[test] rank 1 has had enough"); };
  const std::vector<ProcessOutcome> outcomes = outcomesOf({.before = throws});
  expectTold(outcomes, {}, true);
  EXPECT_EQ(outcomes[1].text, "[test] rank 1 has had enough");
}

TEST_F(GpuFailures, ARankRefusesAnIndex) {
  expectTold(outcomesOf({.hasWrongIndex = true}), {"index 1000 is out of range for an extent of 10"});
}

// Something else takes all memory of the GPU between two calls.
TEST_F(GpuFailures, MemoryRunsOut) {
  const auto takesAll = [](int call) {
    static std::vector<Tensor> taken;
    for (int64_t bytes = kMemory; call == kCallsBefore && bytes >= 64;) {
      try {
        taken.push_back(Tensor::empty({bytes}, DataType::Char, DeviceId::cuda(kVictim)));
      } catch (const UserError&) {
        bytes /= 2;
      }
    }
  };
  expectTold(outcomesOf({.before = takesAll}), {"has no memory for", "are free", "the program takes 1312 bytes",
                                                "its largest tensor is T2 Float[16, 8] of 512 bytes"});
}

constexpr const char* kHint = "; without verification, an earlier step may be the cause";

// Before the first step of all: no step can be the cause.
TEST_F(GpuFailures, AModuleCannotBeLoaded) {
  for (const bool isStaged : {false, true}) {
    for (const int n : {1, 2}) {
      SCOPED_TRACE(n);
      const std::vector<ProcessOutcome> outcomes =
          outcomesOf({.fault = "module:" + std::to_string(n), .isStaged = isStaged});
      expectTold(outcomes, {"cuModuleLoadData", "(719)"});
      for (const ProcessOutcome& outcome : outcomes) {
        EXPECT_EQ(outcome.text.find(kHint), std::string::npos) << outcome.text;
      }
    }
  }
}

// The n-th call of the driver or of a library fails: in the first call of the program, or while the second one is captured. Both ranks hear of the
// rank, the step with its ops, and the call.
TEST_F(GpuFailures, ALaunchFails) {
  for (const int n : {1, 3}) {
    SCOPED_TRACE(n);
    expectTold(outcomesOf({.fault = "launch:" + std::to_string(n)}),
               {"[rank 1/2] at step 0 (pointwise T3[4, 8]: checked_index, embedding)", "cuLaunchKernelEx", kHint});
  }
}

TEST_F(GpuFailures, AProductFails) {
  for (const int n : {1, 2}) {
    SCOPED_TRACE(n);
    expectTold(outcomesOf({.fault = "product:" + std::to_string(n)}),
               {"[rank 1/2] at step 1 (linear ", ": linear)", "cublasLtMatmul", kHint});
  }
}

// Of a kernel, or of a graph in a later call.
TEST_F(GpuFailures, AKernelFailsWhileItRuns) {
  for (const int n : {1, 6}) {
    SCOPED_TRACE(n);
    expectTold(outcomesOf({.fault = "sticky:" + std::to_string(n)}), {"(719)", kHint});
  }
}

// With verification, each step is awaited: the step is that of the kernel.
TEST_F(GpuFailures, AVerifiedKernelFailsWhileItRuns) {
  expectTold(outcomesOf({.fault = "sticky:1", .verify = Verify::Always}),
             {"[rank 1/2] at step 0 (pointwise T3[4, 8]: checked_index, embedding)", "(719)"});
}

TEST_F(GpuFailures, TheDeviceIsLost) { expectTold(outcomesOf({.fault = "lost:400"}), {"(46)", kHint}); }

// In the first call, or while the second one is captured.
TEST_F(GpuFailures, ACollectiveFails) {
  for (const int n : {1, 2, 3, 4, 5, 6}) {
    SCOPED_TRACE(n);
    expectTold(outcomesOf({.fault = "nccl:" + std::to_string(n)}),
               {"nccl", "; set NCCL_DEBUG=WARN and run again to see why"});
  }
}

TEST_F(GpuFailures, ACollectiveFailsWhileItRuns) {
  const std::vector<ProcessOutcome> outcomes = outcomesOf({.fault = "nccl-async:3"});
  expectTold(outcomes, {"nccl", "; set NCCL_DEBUG=WARN and run again to see why"});
  EXPECT_EQ(outcomes[0].text.find("; ;"), std::string::npos) << outcomes[0].text;
}

// Collectives go through host memory, and a step of them waits for the kernels.
TEST_F(GpuFailures, ARankThatStagesFails) {
  for (const std::string fault : {"launch:1", "sticky:1", "sticky:3", "sticky:6", "lost:400"}) {
    SCOPED_TRACE(fault);
    expectTold(outcomesOf({.fault = fault, .isStaged = true}), {kHint});
  }
}

// The collective runs in a lane of the host beside a product. There the second call fails to read the operand.
TEST_F(GpuFailures, ALaneThatStagesFails) {
  const std::string without = librariesWithoutNccl();
  RankProcesses processes(2, [&](int rank) -> std::string {
    joinJob();
    setenv("MESHFUSE_CUDA_LIBRARIES", without.c_str(), 1);
    if (rank == kVictim) {
      setenv("SIMGPU_FAULT", "read:2", 1);
    }
    const std::unique_ptr<Communicator> world = openWorld({.deadline = kSilenceDeadline});
    const DeviceId gpu = DeviceId::cuda(rank);
    FusionExecutorCache cache(programWithALane(2), {.communicator = world.get(), .threads = 1});
    const std::vector<Argument> in = {random({1, 64, 32}, 1).to(gpu), random({64, 32}, 2).to(gpu)};
    std::vector<Tensor> out = cache.runFusionWithInputs(in);
    invariant(world->onDevice().has_value() && world->onDevice()->communicator == nullptr, "it is not staged");
    invariant(std::ranges::any_of(cache.hostProgram()->steps, &Step::runsBeside), "there is no lane:\n{}",
              cache.hostProgram()->toString());
    try {
      Binding(cache.hostProgram(), *world).run(*world, in, out, {.collectives = CollectivesRun::OnThreads});
    } catch (const DeviceError& e) {
      return e.what();
    }
    return "no error";
  });
  for (const ProcessOutcome& outcome : processes.await()) {
    EXPECT_NE(outcome.text.find("cuMemcpyDtoHAsync"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find(kHint), std::string::npos) << outcome.text;
  }
  EXPECT_NE(processes.outcomes()[0].text.find("[rank 1/2]"), std::string::npos) << processes.outcomes()[0].text;
}

}  // namespace
}  // namespace meshfuse
