// Whole programs of several ranks that replay as graphs, collectives included, on GPUs or on simulated ones.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/counting_device.h"
#include "device/cuda/four_gpus.h"
#include "device/cuda/sums_beside_work.h"
#include "exec/trace.h"
#include "host/executor.h"
#include "host/program.h"
#include "host/replay.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

using GpuJointReplay = FourGpus;

// The terms of a reduction over the ranks: elements of an input times those of `factor`, if there is one.
TensorView* overRanks(int64_t ranks, const std::function<TensorView*(TensorView*)>& reduced,
                      TensorView* factor = nullptr) {
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(ranks);
  TensorView* terms = makeContigConcreteTensor({ranks, kElements});
  FusionGuard::current()->addInput(terms);
  terms->setDeviceMesh(mesh);
  terms->outer_split(0, ranks);
  terms->axis(0)->parallelize(ParallelType::DIDx);
  TensorView* result = reduced(factor == nullptr ? neg(terms) : mul(terms, factor));
  result->setDeviceMesh(mesh);
  return result;
}
TensorView* sumOfRows(TensorView* x) { return sum(x, {0}); }

// Two sums over the ranks, which are results of the program.
std::unique_ptr<Fusion> sumsAsResults(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* first = overRanks(ranks, sumOfRows);
  fusion->addOutput(first);
  fusion->addOutput(overRanks(ranks, sumOfRows, first));
  return fusion;
}

// Between two sums one row is given to all ranks; an argument says which. This broadcast is not recorded.
std::unique_ptr<Fusion> sumRowSum(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  Val* number = fusion->inputScalar(DataType::Int);
  fusion->addInput(number);
  TensorView* row = overRanks(
      ranks, [&](TensorView* x) { return select(x, 0, number); }, overRanks(ranks, sumOfRows));
  TensorView* y = overRanks(ranks, sumOfRows, row);
  fusion->addOutput(exp(neg(mul(y, y))));
  return fusion;
}

// The maximum of floating numbers over the ranks, which a kernel of meshfuse makes, between two sums.
std::unique_ptr<Fusion> sumMaxSum(int64_t ranks) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* most = overRanks(
      ranks, [](TensorView* x) { return max(x, {0}); }, overRanks(ranks, sumOfRows));
  TensorView* y = overRanks(ranks, sumOfRows, most);
  fusion->addOutput(exp(neg(mul(y, y))));
  return fusion;
}

// A program on one rank, with tensors that stay from call to call, and the same program on a CPU.
class OnRank {
 public:
  OnRank(Communicator& comm, const std::function<std::unique_ptr<Fusion>()>& program)
      : comm_(comm),
        onCpu_(program(), {.communicator = &comm, .threads = 1}),
        onGpu_(program(), {.communicator = &comm, .threads = 1}) {
    const std::vector<Argument> first = argumentsOf(onCpu_.fusion(), comm.rank(), 0);
    in_ = moved(first, gpuOf(comm));
    out_ = onGpu_.runFusionWithInputs(in_);
    HostProgram host = *onGpu_.hostProgram();
    host.device = countingDevice(host.device, calls_);
    binding_ = std::make_unique<Binding>(std::make_shared<const HostProgram>(std::move(host)), comm);
  }

  // Takes other memory for its inputs and outputs.
  void move() {
    kept_.insert(kept_.end(), out_.begin(), out_.end());  // so that the addresses differ
    for (Argument& a : in_) {
      if (const Tensor* const t = std::get_if<Tensor>(&a)) {
        kept_.push_back(*t);
        a = t->clone();
      }
    }
    for (Tensor& t : out_) {
      t = t.clone();
    }
  }

  // A call with new numbers in the same memory; its results are compared with those of the CPU. Returns what the queues were asked.
  QueueCalls call(uint64_t seed, const ExecuteOptions& options = {}) {
    const std::vector<Tensor> expected = onCpu_.runFusionWithInputs(argumentsOf(onCpu_.fusion(), comm_.rank(), seed));
    run(seed, options);
    const QueueCalls made = calls_;
    for (const int64_t i : indices(expected)) {
      const std::vector<double> got = out_[i].toVector();
      const std::vector<double> wanted = expected[i].toVector();
      for (const int64_t k : indices(wanted)) {
        EXPECT_NEAR(got[k], wanted[k], 1e-5 * (1 + std::abs(wanted[k]))) << "output " << i << " at " << k;
      }
    }
    return made;
  }

  // leftOut: the number of a replay that the queue does not make, from 1.
  void run(uint64_t seed, const ExecuteOptions& options = {}, int64_t leftOut = 0) {
    const std::vector<Argument> arguments = argumentsOf(onCpu_.fusion(), comm_.rank(), seed);
    for (const int64_t i : indices(in_)) {
      if (Tensor* const t = std::get_if<Tensor>(&in_[i])) {
        t->copyFrom(std::get<Tensor>(arguments[i]));
      }
    }
    calls_ = {.leftOut = leftOut};
    binding_->run(comm_, in_, out_, options);
  }

  std::shared_ptr<const HostProgram> host() const { return onGpu_.hostProgram(); }

 private:
  Communicator& comm_;
  FusionExecutorCache onCpu_;
  FusionExecutorCache onGpu_;
  std::vector<Argument> in_;
  std::vector<Tensor> out_;
  std::vector<Tensor> kept_;
  QueueCalls calls_;
  std::unique_ptr<Binding> binding_;
};

void expectReplay(const QueueCalls& calls) {
  EXPECT_EQ(calls.single, 0);
  EXPECT_EQ(calls.captures, 0);
  EXPECT_EQ(calls.replays, 1);
}

TEST_F(GpuJointReplay, AWarmCallIsOneGraph) {
  for (const int64_t ranks : {2, 4}) {
    runLoopback(ranks, [&](Communicator& comm) {
      OnRank program(comm, [&] { return sumsBesideWork(ranks); });
      const std::vector<Replay> pieces = jointReplaysOf(*program.host());
      ASSERT_EQ(pieces.size(), 1);
      EXPECT_EQ(pieces[0].begin(), 0);
      EXPECT_EQ(pieces[0].end(), std::ssize(program.host()->steps));
      EXPECT_EQ(program.call(0).replays, 0);
      const QueueCalls second = program.call(1);
      EXPECT_EQ(second.captures, 1);
      EXPECT_EQ(second.replays, 1);
      for (int call = 2; call < 6; call++) {
        comm.resetCounters();
        expectReplay(program.call(call));
        EXPECT_EQ(comm.counters()[Collective::Barrier].calls, 1);    // ranks meet once
        EXPECT_EQ(comm.counters()[Collective::AllReduce].calls, 4);  // and as many on the CPU
      }
    });
  }
}

// Its peers have the addresses of the recording, but a call is in graphs on all ranks or on none.
TEST_F(GpuJointReplay, NewAddressesOnOneRankAreRecordedByAll) {
  for (const int64_t ranks : {2, 4}) {
    runLoopback(ranks, [&](Communicator& comm) {
      OnRank program(comm, [&] { return sumsAsResults(ranks); });
      for (int call = 0; call < 3; call++) {
        (void)program.call(call);
      }
      for (int round = 1; round < 3; round++) {
        if (comm.rank() == ranks - 1) {
          program.move();
        }
        EXPECT_GT(program.call(10 * round).single, 0);
        EXPECT_EQ(program.call(10 * round + 1).captures, 1);
        expectReplay(program.call(10 * round + 2));
        expectReplay(program.call(10 * round + 3));
      }
    });
  }
}

// A rank that looks at each step makes all of them run step by step; afterwards the recording is as good as before.
TEST_F(GpuJointReplay, WaitsForARankThatIsTraced) {
  runLoopback(2, [&](Communicator& comm) {
    OnRank program(comm, [] { return sumsBesideWork(2); });
    for (int call = 0; call < 3; call++) {
      (void)program.call(call);
    }
    std::vector<StepRecord> profile;
    ExecuteOptions options;
    options.profile = comm.rank() == 1 ? &profile : nullptr;
    EXPECT_GT(program.call(3, options).single, 0);
    EXPECT_EQ(profile.size(), comm.rank() == 1 ? program.host()->steps.size() : 0);
    expectReplay(program.call(4));
  });
}

// Two programs whose calls take turns.
TEST_F(GpuJointReplay, ProgramsTakeTurns) {
  runLoopback(2, [&](Communicator& comm) {
    OnRank first(comm, [] { return sumsBesideWork(2); });
    OnRank second(comm, [] { return sumsBesideWork(2, true); });
    for (int call = 0; call < 5; call++) {
      const QueueCalls calls[] = {first.call(call), second.call(call)};
      for (const QueueCalls& c : calls) {
        EXPECT_EQ(c.replays, call == 0 ? 0 : 1);
        EXPECT_EQ(c.captures, call == 1 ? 1 : 0);
      }
    }
  });
}

// Other programs take more memory for the operands meanwhile: a graph keeps its own.
TEST_F(GpuJointReplay, HoldsReductionsThatAKernelCombines) {
  for (const int64_t ranks : {2, 4}) {
    runLoopback(ranks, [&](Communicator& comm) {
      OnRank program(comm, [&] { return sumMaxSum(ranks); });
      ASSERT_EQ(jointReplaysOf(*program.host()).size(), 1);
      for (int call = 0; call < 3; call++) {
        (void)program.call(call);
      }
      expectReplay(program.call(3));
      const auto larger = [&] {
        auto fusion = std::make_unique<Fusion>();
        FusionGuard guard(fusion.get());
        TensorView* x = makeContigConcreteTensor({ranks, 5 * kElements});
        fusion->addInput(x);
        x->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
        x->outer_split(0, ranks);
        x->axis(0)->parallelize(ParallelType::DIDx);
        fusion->addOutput(max(x, {0}));
        return fusion;
      };
      OnRank(comm, larger).call(4);
      expectReplay(program.call(5));
    });
  }
}

TEST_F(GpuJointReplay, ACollectiveThatIsNotRecordedSplitsTheGraph) {
  for (const int64_t ranks : {2, 4}) {
    runLoopback(ranks, [&](Communicator& comm) {
      OnRank program(comm, [&] { return sumRowSum(ranks); });
      const HostProgram& host = *program.host();
      const std::vector<Replay> pieces = jointReplaysOf(host);
      ASSERT_EQ(pieces.size(), 2);
      EXPECT_EQ(pieces[0].end() + 1, pieces[1].begin());
      const Step& between = host.steps[pieces[0].end()];
      EXPECT_EQ(between.comm.kind, Collective::Broadcast);
      EXPECT_EQ(whyOnHost(between, host.device->info()), "its root is known in the call only");
      for (int call = 0; call < 5; call++) {
        const QueueCalls calls = program.call(call);
        EXPECT_EQ(calls.captures, call == 1 ? 2 : 0);
        EXPECT_EQ(calls.replays, call == 0 ? 0 : 2);
      }
    });
  }
}

// Rank 1 leaves out the last of the two graphs of a call: the collectives of its peer never end by themselves.
TEST_F(GpuJointReplay, ACollectiveOfAGraphThatDoesNotComeIsNamed) {
  constexpr int64_t kLeftOut = 2;
  std::string error;
  std::string awaited;
  int64_t step = 0;
  (void)errorOf([&] {
    runLoopback(2,
                [&](Communicator& comm) {
                  OnRank program(comm, [] { return sumRowSum(2); });
                  for (int call = 0; call < 3; call++) {
                    (void)program.call(call);
                  }
                  if (comm.rank() == 1) {
                    return program.run(3, {}, kLeftOut);
                  }
                  const std::vector<Step>& steps = program.host()->steps;
                  step = jointReplaysOf(*program.host())[kLeftOut - 1].begin();
                  while (steps[step].kind != HostStepKind::Communicate) {
                    step++;
                  }
                  awaited = steps[step].name;
                  error = errorOf([&] { program.run(3); });
                },
                {.deadline = std::chrono::milliseconds(2'000)});
  });
  EXPECT_TRUE(error.starts_with("DeviceError: ")) << error;
  for (const std::string& phrase : {std::string("rank 1"), awaited, "step " + std::to_string(step)}) {
    EXPECT_NE(error.find(phrase), std::string::npos) << error << "\nexpected: " << phrase;
  }
}

}  // namespace
}  // namespace meshfuse
