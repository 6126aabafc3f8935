// Programs whose collectives run beside kernels: the same bits as on one queue, and errors on all ranks if one rank fails while they are in
// flight.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/ranges.h"
#include "exec/backward_program.h"
#include "exec/trace.h"
#include "host/executor.h"
#include "host/program.h"
#include "host/verify_program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"
#include "tensor/allocator.h"

namespace meshfuse {
namespace {

using std::chrono::milliseconds;

// Spares the processor, so collectives are posted on any machine.
constexpr LoopbackLink kLink{.delay = std::chrono::microseconds(20)};
// On threads, and in fibers on any machine: see withoutProcessor().
constexpr std::array kWays = {LoopbackLink{.delay = std::chrono::microseconds(2000)}, LoopbackLink{}};

// The rank has no processor to spare but for a link.
Communicator& withoutProcessor(Communicator& comm) {
  comm.setCoreShare(0.5);
  return comm;
}

int64_t besideOthers(const HostProgram& host) { return std::ranges::count_if(host.steps, &Step::runsBeside); }

// Collectives of the last call ran beside kernels: with a link on threads, without one in a fiber.
void expectBeside(const FusionExecutorCache& cache, Communicator& comm, const LoopbackLink& link) {
  EXPECT_GE(besideOthers(*cache.hostProgram()), 1);
  EXPECT_NE(comm.lane(comm.world()), nullptr);
  EXPECT_EQ(comm.sparesProcessor(), link.delay.count() > 0);
}

bool isOnCpu() { return random({1}).device() == DeviceId::cpu(); }

TEST(Overlap, GivesTheBitsOfOneQueue) {
  for (const int64_t ranks : {2, 3, 4}) {
    const auto body = [&](Communicator& comm) {
      FusionExecutorCache beside(backwardProgram(ranks), {.communicator = &comm, .threads = 1});
      FusionExecutorCache one(backwardProgram(ranks),
                              {.communicator = &comm, .threads = 1, .passes = {.overlapCommunication = false}});
      const std::vector<Argument> arguments = argumentsOf(beside.fusion(), comm.rank());
      const std::vector<Tensor> expected = one.runFusionWithInputs(arguments);
      for (int run = 0; run < 20; run++) {
        const std::vector<Tensor> results = beside.runFusionWithInputs(arguments);
        for (const int64_t i : indices(results)) {
          EXPECT_EQ(results[i].toVector(), expected[i].toVector()) << "output " << i;
        }
      }
      EXPECT_GE(besideOthers(*beside.hostProgram()), kBackwardLayers - 1);
      EXPECT_EQ(besideOthers(*one.hostProgram()), 0);
      EXPECT_EQ(unorderedAccess(*beside.hostProgram(), beside.hostProgram()->sizes()), std::nullopt);
    };
    runLoopback(ranks, body, {.link = kLink, .jitterSeed = static_cast<uint64_t>(ranks)});
  }
}

// Ranks need not agree on it.
TEST(Overlap, GivesTheSameBitsWhereverAndWheneverCollectivesRun) {
  constexpr std::array kAll = {CollectivesRun::OnThreads, CollectivesRun::InFiber};
  const auto body = [&](Communicator& comm) {
    FusionExecutorCache cache(backwardProgram(3), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
    const std::vector<Tensor> expected = cache.runFusionWithInputs(arguments);
    Binding binding(cache.hostProgram(), comm);
    EXPECT_GE(besideOthers(*cache.hostProgram()), kBackwardLayers - 1);
    const std::vector<Tensor> cleared = mapped(expected, [](const Tensor& t) {
      return Tensor::zeros({t.sizes().begin(), t.sizes().end()}, t.dtype()).to(t.device());
    });
    for (size_t run = 0; run < 16; run++) {  // each choice twice
      const size_t choices[] = {run % 2, run / 2 % 2, run / 4 % 2};
      std::vector<Tensor> results = mapped(cleared, &Tensor::clone);
      binding.run(comm, arguments, results, {.collectives = kAll[choices[comm.rank()]]});
      for (const int64_t i : indices(results)) {
        ASSERT_EQ(results[i].toVector(), expected[i].toVector()) << "output " << i << ", run " << run;
      }
    }
  };
  runLoopback(3, body, {.link = kLink, .jitterSeed = 5});
}

// However slow the kernels are: the peer is late by more and more. The profile of another device has times of that device, not of the host.
TEST(Overlap, InAFiberStepsGoOnWhileAPeerIsLate) {
  if (!isOnCpu()) {
    GTEST_SKIP() << "needs times of the host";
  }
  std::chrono::steady_clock::time_point lateBegin;
  bool wentOn = false;
  runLoopback(2, [&](Communicator& comm) {
    FusionExecutorCache cache(backwardProgram(2), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
    const std::vector<Tensor> expected = cache.runFusionWithInputs(arguments);
    Binding binding(cache.hostProgram(), comm);
    for (milliseconds late{50}; !wentOn && late < milliseconds(20'000); late *= 2) {
      std::vector<Tensor> results = mapped(expected, &Tensor::clone);
      std::vector<StepRecord> profile;
      comm.barrier(comm.world());
      if (comm.rank() == 1) {
        std::this_thread::sleep_for(late);
        lateBegin = std::chrono::steady_clock::now();
      }
      binding.run(comm, arguments, results, {.profile = &profile, .collectives = CollectivesRun::InFiber});
      for (const int64_t i : indices(results)) {
        EXPECT_EQ(results[i].toVector(), expected[i].toVector()) << "output " << i;
      }
      comm.barrier(comm.world());
      if (comm.rank() == 0) {
        wentOn = true;
        for (const StepRecord& r : profile) {
          const bool isCollective = r.step->kind == HostStepKind::Communicate;
          EXPECT_TRUE(!isCollective || r.end > lateBegin) << r.step->name;
          wentOn = wentOn && (isCollective || r.end < lateBegin);
        }
      }
      comm.barrier(comm.world());
    }
  });
  EXPECT_TRUE(wentOn);
}

TEST(Overlap, EachEdgeOfTheProgramIsNeeded) {
  runLoopback(2, [](Communicator& comm) {
    FusionExecutorCache cache(backwardProgram(2), {.communicator = &comm, .threads = 1});
    (void)cache.runFusionWithInputs(argumentsOf(cache.fusion(), comm.rank()));
    const HostProgram host = *cache.hostProgram();
    int64_t edges = 0;
    for (const int64_t i : indices(host.steps)) {
      for (const int64_t k : indices(host.steps[i].order.waits)) {
        HostProgram without = host;
        std::vector<int64_t>& waits = without.steps[i].order.waits;
        waits.erase(waits.begin() + k);
        EXPECT_NE(unorderedAccess(without, host.sizes()), std::nullopt)
            << "step " << i << " waits for " << host.steps[i].order.waits[k];
        edges++;
      }
    }
    EXPECT_GE(edges, kBackwardLayers);
  });
}

// The system clears each new page, which would take as long as the sums of an all-reduce.
TEST(Overlap, ResultsTakeTheMemoryOfEarlierOnes) {
  runLoopback(2, [](Communicator& comm) {
    constexpr size_t kBytes = 3 << 20;
    constexpr int kResults = 10;
    const auto useOnce = [&] {
      const std::shared_ptr<void> result = comm.allocate(kBytes);
      comm.barrier(comm.world());
    };
    useOnce();
    comm.barrier(comm.world());
    const AllocatorStatistics before = hostPool().statistics();
    comm.barrier(comm.world());
    for (int k = 0; k < kResults; k++) {
      useOnce();
      comm.barrier(comm.world());
    }
    const AllocatorStatistics after = hostPool().statistics();
    EXPECT_GE(after.allocations, before.allocations + 2 * kResults);
    EXPECT_EQ(after.systemCalls, before.systemCalls);
  });
}

// Each all-reduce takes 100 ms, the kernels together a few: they have ended before the last all-reduce begins.
TEST(Overlap, IsSeenInTheTrace) {
  std::vector<std::unique_ptr<Trace>> traces;
  for (int64_t rank = 0; rank < 2; rank++) {
    traces.push_back(std::make_unique<Trace>(rank));
  }
  const auto body = [&](Communicator& comm) {
    FusionExecutorCache cache(backwardProgram(2),
                              {.communicator = &comm, .threads = 1, .trace = traces[comm.rank()].get()});
    (void)cache.runFusionWithInputs(argumentsOf(cache.fusion(), comm.rank()));
  };
  runLoopback(2, body, {.link = {.delay = std::chrono::milliseconds(100)}});
  for (const auto& trace : traces) {
    const auto ofRow = [&](TraceRow row) {
      return filtered(trace->spans(), [row](const TraceSpan& s) { return s.row == row; });
    };
    const std::vector<TraceSpan> collectives = ofRow(TraceRow::Collectives);
    const std::vector<TraceSpan> kernels = ofRow(TraceRow::Kernels);
    ASSERT_EQ(std::ssize(collectives), kBackwardLayers);
    ASSERT_GE(std::ssize(kernels), 2 * kBackwardLayers);
    const int64_t lastKernel = std::ranges::max(kernels | std::views::transform(&TraceSpan::end));
    const int64_t lastCollective = std::ranges::max(collectives | std::views::transform(&TraceSpan::begin));
    EXPECT_LT(lastKernel, lastCollective);
    EXPECT_TRUE(std::ranges::all_of(collectives, [](const TraceSpan& s) { return s.queue == 1; }));
  }
}

std::vector<std::string> errorsOf(int64_t ranks, const LoopbackLink& link,
                                  const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(ranks);
  (void)errorOf([&] {
    runLoopback(ranks,
                [&](Communicator& comm) {
                  errors[comm.rank()] = errorOf([&] { body(withoutProcessor(comm)); });
                  if (!errors[comm.rank()].empty()) {
                    throwDeviceError("[test] the rank ends");
                  }
                },
                {.deadline = milliseconds(20'000), .link = link});
  });
  for (const std::string& e : errors) {
    EXPECT_EQ(e.find("deadline of"), std::string::npos) << e;
  }
  return errors;
}

// The first index argument gets one that is out of range.
void spoilIndex(std::vector<Argument>& arguments) {
  for (Argument& a : arguments) {
    if (std::get<Tensor>(a).dtype() == DataType::Int) {
      std::get<Tensor>(a) = std::get<Tensor>(a).clone();
      std::get<Tensor>(a).set(std::vector<int64_t>{2}, kBackwardFeatures);
      return;
    }
  }
}

// Wherever in the program the index is refused, also after the last collective: all ranks fail in this call.
TEST(Overlap, AnIndexThatOneRankRefusesFailsTheCallOfAll) {
  for (const LoopbackLink& link : kWays) {
    const std::vector<std::string> errors = errorsOf(3, link, [&](Communicator& comm) {
      FusionExecutorCache cache(backwardProgram(3, true), {.communicator = &comm, .threads = 1});
      std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
      (void)cache.runFusionWithInputs(arguments);
      expectBeside(cache, comm, link);
      if (comm.rank() == 1) {
        spoilIndex(arguments);
      }
      (void)cache.runFusionWithInputs(arguments);
    });
    for (const std::string& e : errors) {
      EXPECT_NE(e.find("index 288 is out of range for an extent of 288"), std::string::npos) << e;
    }
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_EQ(errors[0], errors[2]);
  }
}

// A mistake of the user that all ranks make is refused, and the next call runs.
TEST(Overlap, AnIndexThatAllRanksRefuseLeavesTheGroupUsable) {
  for (const LoopbackLink& link : kWays) {
    std::vector<std::string> refused(3);
    const std::vector<std::string> errors = errorsOf(3, link, [&](Communicator& comm) {
      FusionExecutorCache cache(backwardProgram(3, true), {.communicator = &comm, .threads = 1});
      const std::vector<Argument> good = argumentsOf(cache.fusion(), comm.rank());
      const std::vector<double> expected = cache.runFusionWithInputs(good)[0].toVector();
      expectBeside(cache, comm, link);
      EXPECT_TRUE(cache.hostProgram()->overlap.endsTogether);
      EXPECT_TRUE(std::ranges::any_of(cache.commSteps(), [](const CommRecord& c) { return c.kind == "all-gather"; }))
          << "the indices are gathered after their check";
      std::vector<Argument> bad = good;
      spoilIndex(bad);
      for (int call = 0; call < 3; call++) {
        refused[comm.rank()] = errorOf([&] { (void)cache.runFusionWithInputs(bad); });
        EXPECT_EQ(cache.runFusionWithInputs(good)[0].toVector(), expected);
      }
    });
    for (const int rank : {0, 1, 2}) {
      EXPECT_EQ(errors[rank], "");
      EXPECT_EQ(refused[rank], refused[0]);
    }
    EXPECT_TRUE(refused[0].starts_with("UserError: ")) << refused[0];
    EXPECT_NE(refused[0].find("index 288 is out of range for an extent of 288"), std::string::npos) << refused[0];
  }
}

TEST(Overlap, ARankThatLeavesIsNamedAndTheOthersGoOn) {
  for (const LoopbackLink& link : kWays) {
    std::mutex mutex;
    std::vector<std::vector<int64_t>> survivors;
    const std::vector<std::string> errors = errorsOf(3, link, [&](Communicator& comm) {
      FusionExecutorCache cache(backwardProgram(3), {.communicator = &comm, .threads = 1});
      const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
      (void)cache.runFusionWithInputs(arguments);
      expectBeside(cache, comm, link);
      if (comm.rank() == 2) {
        throwDeviceError("[test] rank 2 breaks");
      }
      const std::string error = errorOf([&] { (void)cache.runFusionWithInputs(arguments); });
      EXPECT_NE(error.find("rank 2"), std::string::npos) << error;
      Communicator::Survivors left = comm.shrink();
      FusionExecutorCache after(backwardProgram(2), {.communicator = left.world.get(), .threads = 1});
      (void)after.runFusionWithInputs(argumentsOf(after.fusion(), left.world->rank()));
      const std::lock_guard lock(mutex);
      survivors.push_back(left.oldRanks);
    });
    EXPECT_EQ(survivors, (std::vector<std::vector<int64_t>>{{0, 1}, {0, 1}})) << errors[0] << errors[1] << errors[2];
  }
}

// This rank knows of the failure before it meets the others. The caller's vector may have records of another program.
TEST(Overlap, ACallThatFailsBeforeItsStepsHasAnEmptyProfile) {
  runLoopback(2, [](Communicator& comm) {
    FusionExecutorCache cache(backwardProgram(2), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
    std::vector<Tensor> results = cache.runFusionWithInputs(arguments);
    ASSERT_TRUE(cache.hostProgram()->overlap.allowed);
    Binding binding(cache.hostProgram(), comm);
    comm.barrier(comm.world());
    if (comm.rank() == 0) {
      comm.abort("for a test");
    } else {
      EXPECT_THROW(comm.barrier(comm.world()), DeviceError);  // it knows of the failure before its call
    }
    const Step ofAnother;
    std::vector<StepRecord> profile = {{.step = &ofAnother}};
    EXPECT_THROW(binding.run(comm, arguments, results, {.profile = &profile}), DeviceError);
    EXPECT_TRUE(profile.empty());
  });
}

// Also if it has begun the call long before: a state that the call updates in place is as it was.
TEST(Overlap, ARankThatMakesAnotherCallLeavesTheArgumentsAsTheyAre) {
  const std::vector<std::string> errors = errorsOf(2, {}, [](Communicator& comm) {
    std::unique_ptr<Fusion> updates = backwardProgram(2);
    {
      FusionGuard guard(updates.get());
      TensorView* state = makeContigConcreteTensor({64});
      updates->addInput(state);
      state->setDeviceMesh(DeviceMesh::createForNumDevices(2));
      TensorView* next = add(mul(state, 0.5), 1.0);
      updates->addOutput(next);
      updates->aliasOutputToInput(next, state);
    }
    FusionExecutorCache cache(std::move(updates), {.communicator = &comm, .threads = 1});
    FusionExecutorCache another(backwardProgram(2, true), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
    const std::vector<Argument> more = argumentsOf(another.fusion(), comm.rank());
    const Tensor& state = std::get<Tensor>(arguments.back());
    const std::vector<double> first = state.toVector();
    (void)cache.runFusionWithInputs(arguments);
    const std::vector<double> before = state.toVector();
    EXPECT_NE(before, first);
    expectBeside(cache, comm, {});
    (void)another.runFusionWithInputs(more);
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(200));
      (void)another.runFusionWithInputs(more);
    }
    try {
      (void)cache.runFusionWithInputs(arguments);
    } catch (...) {
      EXPECT_EQ(state.toVector(), before);
      throw;
    }
  });
  EXPECT_NE(errors[0], "");
  EXPECT_EQ(errors[0], errors[1]);
}

// The rendezvous is paused then. The step is made to fail: it gets the reference of another one.
TEST(Overlap, InAFiberAFailureNamesTheStep) {
  if (!isOnCpu()) {
    GTEST_SKIP() << "collectives are work of the device";
  }
  std::string failed;
  const std::vector<std::string> errors = errorsOf(2, {}, [&](Communicator& comm) {
    FusionExecutorCache cache(backwardProgram(2), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
    std::vector<Tensor> results = cache.runFusionWithInputs(arguments);
    expectBeside(cache, comm, {});
    auto host = std::make_shared<HostProgram>(*cache.hostProgram());
    if (comm.rank() == 0) {
      const auto isOfDevice = [](const Step& s) { return s.kind != HostStepKind::Communicate; };
      const auto step = std::ranges::find_if(host->steps, isOfDevice);
      step->kind = HostStepKind::Reference;
      step->reference = std::shared_ptr<const Fusion>(backwardProgram(2));
      failed = fmt::format("[rank 0/2] at step {} ({}", step - host->steps.begin(), step->name);
    }
    Binding binding(host, comm);
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(200));
    }
    binding.run(comm, arguments, results, {.collectives = CollectivesRun::InFiber});
  });
  EXPECT_NE(errors[1].find(failed), std::string::npos) << errors[1] << "\nfailed: " << failed;
}

TEST(Overlap, RanksWithOtherProgramsGetOneErrorAtOnce) {
  for (const LoopbackLink& link : kWays) {
    for (const int64_t ranks : {2, 4}) {
      const std::vector<std::string> errors = errorsOf(ranks, link, [&](Communicator& comm) {
        FusionExecutorCache cache(backwardProgram(ranks), {.communicator = &comm, .threads = 1});
        FusionExecutorCache another(backwardProgram(ranks, true), {.communicator = &comm, .threads = 1});
        const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
        const std::vector<Argument> more = argumentsOf(another.fusion(), comm.rank());
        (void)cache.runFusionWithInputs(arguments);
        expectBeside(cache, comm, link);
        (void)another.runFusionWithInputs(more);
        (void)(comm.rank() == 0 ? cache.runFusionWithInputs(arguments) : another.runFusionWithInputs(more));
      });
      for (const std::string& error : errors) {
        EXPECT_EQ(error, errors[0]);
      }
      EXPECT_TRUE(errors[0].starts_with("DeviceError") || errors[0].starts_with("UserError")) << errors[0];
    }
  }
}

// MESHFUSE_SOAK: the number of runs.
TEST(Overlap, SoakWithRandomDelays) {
  const char* asked = std::getenv("MESHFUSE_SOAK");
  const int64_t runs = asked != nullptr ? std::atoll(asked) : 60;
  const auto body = [&](Communicator& comm, const LoopbackLink& link) {
    FusionExecutorCache cache(backwardProgram(4), {.communicator = &withoutProcessor(comm), .threads = 1});
    const std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank());
    std::vector<Tensor> outputs = cache.runFusionWithInputs(arguments);
    expectBeside(cache, comm, link);
    const auto expected = mapped(outputs, &Tensor::toVector);
    for (int64_t run = 0; run < runs; run++) {
      cache.run(arguments, outputs);
      for (const int64_t i : indices(outputs)) {
        ASSERT_TRUE(outputs[i].toVector() == expected[i]) << "run " << run << ", output " << i;
      }
    }
  };
  for (const LoopbackLink& link : kWays) {
    runLoopback(4, [&](Communicator& comm) { body(comm, link); }, {.link = link, .jitterSeed = 11});
  }
}

}  // namespace
}  // namespace meshfuse
