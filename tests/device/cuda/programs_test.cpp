// Programs of several ranks with a GPU each, or a simulated one: all steps are work of queues, and collectives run beside kernels.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/driver/context.h"
#include "device/cuda/driver/streams.h"
#include "device/cuda/forwarding_queue.h"
#include "device/cuda/four_gpus.h"
#include "device/cuda/sums_beside_work.h"
#include "exec/trace.h"
#include "host/executor.h"
#include "host/program.h"
#include "host/verify_program.h"
#include "inputs.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"
#include "stress/checked_cache.h"

namespace meshfuse {
namespace {

using GpuPrograms = FourGpus;

TEST_F(GpuPrograms, CollectivesRunBesideKernels) {
  for (const int64_t ranks : {2, 4}) {
    runLoopback(ranks, [&](Communicator& comm) {
      FusionExecutorCache onCpu(sumsBesideWork(ranks), {.communicator = &comm, .threads = 1});
      FusionExecutorCache onGpu(sumsBesideWork(ranks), {.communicator = &comm, .threads = 1});
      for (int run = 0; run < 4; run++) {
        const std::vector<Argument> arguments = argumentsOf(onCpu.fusion(), comm.rank(), 100 * run);
        const std::vector<Tensor> expected = onCpu.runFusionWithInputs(arguments);
        comm.resetCounters();
        const std::vector<Tensor> results = onGpu.runFusionWithInputs(moved(arguments, gpuOf(comm)));
        EXPECT_EQ(comm.counters()[Collective::AllReduce].calls, 2);
        EXPECT_LE(comm.counters()[Collective::Barrier].calls, 2);  // ranks meet once, and again if they record
        for (const int64_t i : indices(expected)) {
          const std::vector<double> got = results[i].toVector();
          const std::vector<double> wanted = expected[i].toVector();
          for (const int64_t k : indices(wanted)) {
            ASSERT_NEAR(got[k], wanted[k], 1e-5 * (1 + std::abs(wanted[k]))) << "output " << i << " at " << k;
          }
        }
      }
      const std::shared_ptr<const HostProgram> host = onGpu.hostProgram();
      EXPECT_TRUE(host->overlap.allowed);
      EXPECT_EQ(std::ranges::count_if(host->steps, [](const Step& s) { return s.order.queue == 1; }), 2);
      EXPECT_EQ(unorderedAccess(*host, host->sizes()), std::nullopt);
    });
  }
}

// Work of a call is under way when the next one begins, on another stream.
TEST_F(GpuPrograms, OfSeveralRanksAreOrderedWithStreams) {
  runLoopback(2, [&](Communicator& comm) {
    const CudaContext context(comm.rank());
    std::vector<std::unique_ptr<CudaStream>> streams;
    for (int i = 0; i < 2; i++) {
      const CurrentContext current(context);
      streams.push_back(std::make_unique<CudaStream>(context));
    }
    FusionExecutorCache onCpu(sumsBesideWork(2), {.communicator = &comm, .threads = 1});
    FusionExecutorCache onGpu(sumsBesideWork(2), {.communicator = &comm, .threads = 1});
    std::vector<std::vector<Tensor>> expected;
    std::vector<std::vector<Tensor>> results;
    for (int run = 0; run < 6; run++) {
      const std::vector<Argument> arguments = argumentsOf(onCpu.fusion(), comm.rank(), 100 * run);
      expected.push_back(onCpu.runFusionWithInputs(arguments));
      results.push_back(mapped(expected.back(), [&](const Tensor& t) {
        return Tensor::empty({t.sizes().begin(), t.sizes().end()}, t.dtype(), gpuOf(comm));
      }));
      onGpu.run(std::span<const Argument>(moved(arguments, gpuOf(comm))), results.back(),
                GpuStream{streams[run % 2]->get()});
    }
    onGpu.wait();
    for (const int64_t run : indices(expected)) {
      for (const int64_t i : indices(expected[run])) {
        const std::vector<double> got = results[run][i].toVector();
        const std::vector<double> wanted = expected[run][i].toVector();
        for (const int64_t k : indices(wanted)) {
          ASSERT_NEAR(got[k], wanted[k], 1e-5 * (1 + std::abs(wanted[k]))) << "run " << run << ", output " << i;
        }
      }
    }
  });
}

// Does something else before its third replay.
class PausingQueue final : public ForwardingQueue {
 public:
  PausingQueue(std::unique_ptr<Queue> to, std::function<void()> pause)
      : ForwardingQueue(std::move(to)), pause_(std::move(pause)) {}
  void replay(Recording& recording) override {
    if (++replays_ == 3) {
      pause_();
    }
    to_->replay(recording);
  }

 private:
  int64_t replays_ = 0;
  const std::function<void()> pause_;
};

// Calls on a stream; the last one is replayed, and rank 1 does something else before its collectives. Returns the error that rank 0 has when it
// waits, or whether both ranks had the right results.
std::string callOnStreams(const std::function<void()>& onRank1, std::atomic<bool>& hasReturned) {
  std::string said;
  std::atomic<int> right = 0;
  const auto body = [&](Communicator& comm) {
    FusionExecutorCache cache(sumsBesideWork(2), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> arguments = moved(argumentsOf(cache.fusion(), comm.rank(), 1), gpuOf(comm));
    const std::vector<Tensor> expected = cache.runFusionWithInputs(arguments);
    std::vector<Tensor> results = mapped(expected, [](const Tensor& t) { return t.clone(); });
    HostProgram host = *cache.hostProgram();
    if (comm.rank() == 1) {
      host.device = std::make_shared<QueueWrappingDevice>(host.device, [&](std::unique_ptr<Queue> queue) {
        return std::make_unique<PausingQueue>(std::move(queue), onRank1);
      });
    }
    const CudaContext context(comm.rank());
    const CurrentContext current(context);
    const CudaStream stream(context);
    Binding binding(std::make_shared<const HostProgram>(std::move(host)), comm);
    const auto late = std::make_shared<LateFailure>();
    const StreamOrder order{GpuStream{stream.get()}, late};
    for (int call = 0; call < 4; call++) {
      binding.run(comm, arguments, results, {.order = &order});
    }
    if (comm.rank() == 0) {
      hasReturned = true;
      said = errorOf([&] { binding.wait(); });
    } else {
      binding.wait();
    }
    bool isRight = true;
    for (const int64_t i : indices(expected)) {
      isRight = isRight && results[i].toVector() == expected[i].toVector();
    }
    right += isRight ? 1 : 0;
  };
  const std::string error = errorOf([&] { runLoopback(2, body, {.deadline = std::chrono::milliseconds(5'000)}); });
  return said.empty() && error.empty() && right == 2 ? "right" : said;
}

void awaitReturn(const std::atomic<bool>& hasReturned) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (!hasReturned && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  check(hasReturned, "[test] the call waits for its collectives");
}

// Rank 1 takes part in the collectives when the call of rank 0 has returned.
TEST_F(GpuPrograms, OnStreamsDoNotWaitForTheirCollectives) {
  std::atomic<bool> hasReturned = false;
  EXPECT_EQ(callOnStreams([&] { awaitReturn(hasReturned); }, hasReturned), "right");
}

TEST_F(GpuPrograms, ARankThatFailsAfterACallOnAStreamIsNamedByTheNextWait) {
  std::atomic<bool> hasReturned = false;
  const std::string error = callOnStreams(
      [&] {
        awaitReturn(hasReturned);
        throwDeviceError("[test] the other rank fails");
      },
      hasReturned);
  EXPECT_TRUE(error.starts_with("DeviceError: ")) << error;
  for (const std::string phrase : {"rank 1", "the other rank fails"}) {
    EXPECT_NE(error.find(phrase), std::string::npos) << error << "\nexpected: " << phrase;
  }
}

// Every step waits for the one before: what a trace or verification sees.
TEST_F(GpuPrograms, AreVerifiedAndTracedStepByStep) {
  runLoopback(2, [&](Communicator& comm) {
    Trace trace(comm.rank());
    FusionExecutorCache cache(sumsBesideWork(2),
                              {.communicator = &comm, .threads = 1, .verify = Verify::Always, .trace = &trace});
    (void)cache.runFusionWithInputs(moved(argumentsOf(cache.fusion(), comm.rank(), 3), gpuOf(comm)));
    EXPECT_EQ(std::ranges::count_if(trace.spans(), [](const TraceSpan& s) { return s.row == TraceRow::Collectives; }),
              2);
  });
}

// The errors of the ranks; none of them waits for the deadline.
std::vector<std::string> errorsOf(int64_t ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(ranks);
  (void)errorOf([&] {
    runLoopback(ranks,
                [&](Communicator& comm) {
                  errors[comm.rank()] = errorOf([&] { body(comm); });
                  if (!errors[comm.rank()].empty()) {
                    throwDeviceError("[test] the rank ends");
                  }
                },
                {.deadline = std::chrono::milliseconds(60'000)});
  });
  for (const std::string& e : errors) {
    EXPECT_EQ(e.find("deadline of"), std::string::npos) << e;
  }
  return errors;
}

TEST_F(GpuPrograms, AnIndexThatOneRankRefusesIsAnErrorOfAll) {
  const std::vector<std::string> errors = errorsOf(2, [](Communicator& comm) {
    FusionExecutorCache cache(sumsBesideWork(2, true), {.communicator = &comm, .threads = 1});
    std::vector<Argument> arguments = argumentsOf(cache.fusion(), comm.rank(), 1);
    (void)cache.runFusionWithInputs(moved(arguments, gpuOf(comm)));
    for (Argument& a : arguments) {
      if (std::get<Tensor>(a).dtype() == DataType::Int && comm.rank() == 1) {
        std::get<Tensor>(a).set(std::vector<int64_t>{2}, 8);
      }
    }
    (void)cache.runFusionWithInputs(moved(arguments, gpuOf(comm)));
  });
  for (const std::string& e : errors) {
    EXPECT_NE(e.find("index 8 is out of range for an extent of 8"), std::string::npos) << e;
  }
}

// Its peers are in a collective of NCCL then, which never ends by itself.
TEST_F(GpuPrograms, ARankThatFailsBeforeACollectiveEndsThoseOfAll) {
  const std::vector<std::string> errors = errorsOf(2, [](Communicator& comm) {
    FusionExecutorCache cache(sumsBesideWork(2), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> arguments = moved(argumentsOf(cache.fusion(), comm.rank(), 1), gpuOf(comm));
    (void)cache.runFusionWithInputs(arguments);
    HostProgram host = *cache.hostProgram();
    auto sizes = std::make_shared<ProgramSizes>(host.sizes());
    for (const int64_t i : indices(host.steps)) {
      if (comm.rank() == 1 && host.steps[i].name.starts_with("all-reduce")) {
        sizes->steps[i].comm.count = -1;
      }
    }
    host.constant = std::move(sizes);
    Binding binding(std::make_shared<const HostProgram>(std::move(host)), comm);
    std::vector<Tensor> outputs = cache.runFusionWithInputs(arguments);
    binding.run(comm, arguments, outputs);
  });
  EXPECT_NE(errors[1].find("count is -1"), std::string::npos) << errors[1];
  EXPECT_NE(errors[0].find("rank 1/2"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("count is -1"), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace meshfuse
