// What does the host spend on a warm call on a GPU, besides the calls of the driver? With a driver whose calls return at once.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "allocations.h"
#include "device/cuda/driver/library.h"
#include "figures.h"
#include "host/program.h"
#include "meshfuse/meshfuse.h"

namespace meshfuse {
namespace {

constexpr int kRounds = 100;
constexpr int kCalls = 1000;  // of a round

template <class Call>
double secondsOfACall(const Call& call) {
  std::vector<double> times(kRounds);
  for (double& t : times) {
    t = secondsOf([&] {
          for (int i = 0; i < kCalls; i++) {
            call();
          }
        }) /
        kCalls;
  }
  return median(times);
}

// A chain of pairs of kernels: the second one needs all rows of the first one's results.
std::unique_ptr<Fusion> chain(int pairs) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigConcreteTensor({8, 8});
  fusion->addInput(x);
  TensorView* y = neg(x);
  for (int i = 0; i < pairs; i++) {
    y = sub(y, broadcast(mean(y, {0}), {true, false}));
    y = div(y, broadcast(sum(mul(y, y), {1}), {false, true}));
  }
  fusion->addOutput(y);
  return fusion;
}

void warmCall(benchmark::State& state, const char* name, int pairs, double goal, double (*bare)()) {
  const DeviceId gpu = DeviceId::cuda(0);
  FusionExecutorCache cache(chain(pairs));
  const std::vector<Argument> in = {Tensor::empty({8, 8}, DataType::Float, gpu)};
  std::vector<Tensor> out = {Tensor::empty({8, 8}, DataType::Float, gpu)};
  const auto call = [&] { cache.run(std::span<const Argument>(in), out, GpuStream{}); };
  for (int i = 0; i < 10; i++) {
    call();
  }
  for (auto _ : state) {
    const double seconds = secondsOfACall(call);
    const int64_t before = heapAllocations();
    for (int i = 0; i < kRounds * kCalls; i++) {
      call();
    }
    const int64_t made = heapAllocations() - before;
    state.SetIterationTime(seconds);
    record({std::string(name) + ", steps", static_cast<double>(cache.hostProgram()->steps.size()), "", std::nullopt,
            "higher"});
    record({std::string(name) + ", over the bare call", (seconds - bare()) * 1e9, "ns", goal, "lower"});
    record({std::string(name) + ", heap allocations in 100,000 calls", static_cast<double>(made), "", 0, "lower"});
  }
  cache.wait();
}

double bareLaunch() {
  cuda::LaunchConfig config = {};
  return secondsOfACall([&] { driverLibrary().launchKernel(&config, nullptr, nullptr, nullptr); });
}
double bareReplay() {
  return secondsOfACall([] { driverLibrary().graphLaunch(nullptr, nullptr); });
}

BENCHMARK_CAPTURE(warmCall, launch, "warm launch of one kernel", 0, 300, bareLaunch)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kNanosecond);
BENCHMARK_CAPTURE(warmCall, replay, "replay of a graph", 6, 1000, bareReplay)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) {
  setenv("MESHFUSE_CUDA_LIBRARIES", MESHFUSE_INSTANT_DRIVER, 1);
  setenv("MESHFUSE_CACHE_DIR", "off", 1);
  return meshfuse::runBenchmarks(argc, argv);
}
