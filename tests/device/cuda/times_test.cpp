// The times of steps on a GPU, or the simulated one: from events on their streams, without a wait between steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ranges.h"
#include "device/cuda/counting_device.h"
#include "device/cuda/four_gpus.h"
#include "device/cuda/sums_beside_work.h"
#include "device/open.h"
#include "exec/trace.h"
#include "host/executor.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

class GpuTimes : public FourGpus {};

// Of one rank; the host program of `cache` after a call.
std::shared_ptr<const HostProgram> counting(const FusionExecutorCache& cache, QueueCalls& calls) {
  HostProgram host = *cache.hostProgram();
  host.device = countingDevice(host.device, calls);
  return std::make_shared<const HostProgram>(std::move(host));
}

TEST_F(GpuTimes, OfPointsAreInTheOrderOfTheWork) {
  const std::shared_ptr<Device> gpu = openDevice(DeviceId::cuda(0), {});
  const auto queue = gpu->makeQueue();
  const auto timer = gpu->makeTimer(3);
  const auto memory = gpu->allocate(1 << 20);
  const auto begin = Timer::Clock::now();
  for (const int64_t point : {2, 0, 1}) {
    timer->mark(point, *queue);
    queue->clear(memory.get(), 1 << 20);
  }
  queue->wait();
  timer->synchronize(*queue);
  EXPECT_LE(begin, timer->timeOf(2));
  EXPECT_LT(timer->timeOf(2), timer->timeOf(0));
  EXPECT_LT(timer->timeOf(0), timer->timeOf(1));
  EXPECT_LE(timer->timeOf(1), Timer::Clock::now());
}

// The host waits for the queues at the end of a call, as it does without a profile.
TEST_F(GpuTimes, NoStepWaitsForTheOneBefore) {
  runLoopback(2, [](Communicator& comm) {
    FusionExecutorCache cache(sumsBesideWork(2), {.communicator = &comm, .threads = 1});
    const std::vector<Argument> in = moved(argumentsOf(cache.fusion(), comm.rank(), 0), gpuOf(comm));
    std::vector<Tensor> out = cache.runFusionWithInputs(in);
    QueueCalls calls;
    Binding binding(counting(cache, calls), comm);
    calls = {};
    binding.run(comm, in, out);
    const int64_t waits = std::exchange(calls, {}).waits;
    std::vector<StepRecord> records;
    binding.run(comm, in, out, {.profile = &records});
    EXPECT_EQ(calls.waits, waits);
    EXPECT_EQ(std::ssize(records), std::ssize(cache.hostProgram()->steps));
    for (const StepRecord& r : records) {
      EXPECT_LT(r.begin, r.end) << r.step->name;
    }
  });
}

// A kernel that needs no sum runs beside the sums, and the trace shows both at the same time.
TEST_F(GpuTimes, ATraceShowsWhatRunsBesideACollective) {
  constexpr int kCalls = 50;
  std::array<int64_t, 2> overlaps{};
  runLoopback(2, [&](Communicator& comm) {
    Trace trace(comm.rank());
    FusionExecutorCache cache(sumsBesideWork(2), {.communicator = &comm, .threads = 1, .trace = &trace});
    const std::vector<Argument> in = moved(argumentsOf(cache.fusion(), comm.rank(), 0), gpuOf(comm));
    for (int call = 0; call < kCalls; call++) {
      (void)cache.runFusionWithInputs(in);
    }
    const std::vector<TraceSpan>& spans = trace.spans();
    for (const TraceSpan& s : spans) {
      if (s.row == TraceRow::Calls) {
        continue;
      }
      EXPECT_LE(s.begin, s.end) << s.name;
      const auto call =
          std::ranges::find_if(spans, [&](const TraceSpan& c) { return c.row == TraceRow::Calls && c.call == s.call; });
      EXPECT_LE(call->begin, s.begin) << s.name;
      EXPECT_LE(s.end, call->end) << s.name;
      overlaps[comm.rank()] += std::ranges::count_if(spans, [&](const TraceSpan& other) {
        return s.row == TraceRow::Kernels && other.row == TraceRow::Collectives && s.begin < other.end &&
               other.begin < s.end;
      });
    }
  });
  EXPECT_GT(overlaps[0], 0);
  EXPECT_GT(overlaps[1], 0);
}

// The index is refused on the device; the steps before and after it have run.
TEST_F(GpuTimes, ARefusedCallIsRecorded) {
  runLoopback(2, [](Communicator& comm) {
    Trace trace(comm.rank());
    FusionExecutorCache cache(sumsBesideWork(2, true), {.communicator = &comm, .threads = 1, .trace = &trace});
    std::vector<Argument> in = moved(argumentsOf(cache.fusion(), comm.rank(), 0), gpuOf(comm));
    for (Argument& a : in) {
      if (const Tensor& t = std::get<Tensor>(a); t.dtype() == DataType::Int) {
        a = Tensor::of({0, 1, 8, 3, 4}, {5}, DataType::Int).to(gpuOf(comm));
      }
    }
    EXPECT_THROW((void)cache.runFusionWithInputs(in), UserError);
    EXPECT_EQ(std::ssize(trace.spans()) - std::ranges::count(trace.spans(), TraceRow::Waits, &TraceSpan::row),
              1 + std::ssize(cache.hostProgram()->steps));
  });
}

}  // namespace
}  // namespace meshfuse
