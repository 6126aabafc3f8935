// What do a warm call, a cold kernel, the way from a fusion to a host program, and the binding of a program of any size cost?
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "allocations.h"
#include "base/ranges.h"
#include "device/cpu/orc/cpu_compiler.h"
#include "device/device.h"
#include "device/open.h"
#include "exec/compile.h"
#include "exec/fusion_executor_cache.h"
#include "figures.h"
#include "host/build.h"
#include "host/executor.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/communicator.h"
#include "preseg_passes/concretize.h"
#include "schedule/template.h"
#include "segment/local_context.h"
#include "segment/table.h"

namespace meshfuse {

namespace {

std::unique_ptr<Fusion> fusionOf(const std::function<TensorView*(TensorView*)>& build) {
  auto fusion = std::make_unique<Fusion>();
  FusionGuard guard(fusion.get());
  TensorView* x = makeContigTensor(2);
  fusion->addInput(x);
  fusion->addOutput(build(x));
  return fusion;
}

void warmAdd(benchmark::State& state) {
  FusionExecutorCache cache(fusionOf([](TensorView* x) {
                              TensorView* y = makeContigTensor(2);
                              FusionGuard::current()->addInput(y);
                              return add(x, y);
                            }),
                            {.threads = 2});
  std::vector<Argument> in = {randomTensor({8, 8}, DataType::Float, 1), randomTensor({8, 8}, DataType::Float, 2)};
  std::vector<Tensor> out = cache.runFusionWithInputs(in);
  for (int i = 0; i < 1000; i++) {
    cache.run(std::span<const Argument>(in), out);
  }
  constexpr int kRounds = 100;
  constexpr int kCalls = 1000;  // of a round
  for (auto _ : state) {
    std::vector<double> times(kRounds);
    int64_t before = heapAllocations();
    for (double& t : times) {
      auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; i++) {
        cache.run(std::span<const Argument>(in), out);
      }
      t = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kCalls;
    }
    int64_t allocated = heapAllocations() - before;  // before the figures are noted, which allocates
    state.SetIterationTime(median(times));
    record({"warm 8x8 add, a call", median(times) * 1e9, "ns", 100, "lower"});
    record({"warm 8x8 add, heap allocations in 100,000 calls", static_cast<double>(allocated), "", 0, "lower"});
  }
}

// A chain whose text differs from call to call, so that no cache knows its kernel.
void coldSoftmax(benchmark::State& state) {
  int64_t columns = 4096 + 16 * (std::chrono::steady_clock::now().time_since_epoch().count() % 1000);
  for (auto _ : state) {
    std::vector<double> times;
    for (int i = 0; i < 9; i++) {
      std::unique_ptr<Fusion> fusion = fusionOf([](TensorView* x) { return softmax(x, 1); });
      CpuCompiler compiler({.threads = 1});
      std::vector<Argument> in = {randomTensor({64, columns + 16 * i}, DataType::Float, 1)};
      std::unique_ptr<Communicator> self = makeSelfCommunicator();
      const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1});
      const SegmentedProgram program = compileToSegments(*fusion, in, Agreement(*self).call(), device->info());
      const std::vector<tile::Program> programs =
          mapped(program.segments, [](const Segment& s) { return s.plan.program; });
      times.push_back(secondsOf([&] { (void)compiler.compile(programs); }));
    }
    state.SetIterationTime(median(times));
    record({"cold CPU kernel, softmax", median(times) * 1e3, "ms", 6, "lower"});
  }
}

void longChain(benchmark::State& state) {
  std::unique_ptr<Fusion> fusion = fusionOf([](TensorView* x) {
    TensorView* y = x;
    for (int i = 0; i < 1000; i++) {
      y = i % 2 == 0 ? add(y, 0.5) : mul(y, 0.75);
    }
    return y;
  });
  std::vector<Argument> in = {randomTensor({64, 64}, DataType::Float, 1)};
  std::unique_ptr<Communicator> self = makeSelfCommunicator();
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false});
  for (auto _ : state) {
    std::vector<double> times;
    for (int i = 0; i < 5; i++) {
      times.push_back(secondsOf([&] { (void)compile(*fusion, in, Agreement(*self).call(), device); }));
    }
    state.SetIterationTime(median(times));
    record({"1,000-op chain to a host program, without compiling kernels", median(times) * 1e3, "ms", 100, "lower"});
  }
}

// Six layers of a softmax, an activation and a sum over the rows: no op needs a library, which takes constant sizes.
TensorView* sixLayers(TensorView* x) {
  for (int layer = 0; layer < 6; layer++) {
    TensorView* y = tanh_gelu(softmax(x, 1));
    x = add(x, mul(y, broadcast(sum(y, {0}), {true, false})));
  }
  return x;
}

// New sizes for a program of any size, against a new plan for them.
void binding(benchmark::State& state) {
  const std::unique_ptr<Communicator> self = makeSelfCommunicator();
  const std::shared_ptr<Device> device = openDevice(DeviceId::cpu(), {.threads = 1});
  const std::shared_ptr<Fusion> fusion = fusionOf(sixLayers);
  const std::shared_ptr<Fusion> local = fusion->clone();
  LocalContext context{.device = device->info()};
  runLocalPasses(*local, context);
  std::vector<Segment> segments = segment(*local, context);
  writeSteps(segments);
  const auto anySize = buildHostProgram(local, segments, {.device = device, .layouts = context.layouts});
  for (auto _ : state) {
    std::vector<double> bindings;
    std::vector<double> plans;
    for (int64_t round = 0; round < 15; round++) {
      const std::vector<std::vector<int64_t>> shapes = {{32 + round, 48}};
      bindings.push_back(secondsOf([&] { (void)Binding(anySize, *self, bindSymbols(*local, shapes)); }));
      const std::vector<Argument> in = {randomTensor(shapes[0], DataType::Float, 1)};
      plans.push_back(secondsOf([&] { (void)compile(*fusion, in, Agreement(*self).call(), device); }));
    }
    state.SetIterationTime(median(bindings));
    record({"six layers of any size, bound to new sizes", median(bindings) * 1e6, "us", std::nullopt, "lower"});
    record({"six layers, a plan for new sizes", median(plans) * 1e6, "us", std::nullopt, "lower"});
  }
}

BENCHMARK(warmAdd)->Iterations(1)->UseManualTime()->Unit(benchmark::kNanosecond);
BENCHMARK(coldSoftmax)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(longChain)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(binding)->Iterations(1)->UseManualTime()->Unit(benchmark::kMicrosecond);

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
