// What do a warm call, the way from a fusion to a host program, the binding of a program of any size, and new shapes cost?
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "allocations.h"
#include "base/ranges.h"
#include "device/device.h"
#include "device/open.h"
#include "encoder_program.h"
#include "exec/compile.h"
#include "exec/fusion_executor_cache.h"
#include "figures.h"
#include "host/build.h"
#include "host/executor.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/communicator.h"
#include "multidevice/transport/loopback/loopback.h"
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
    record({"warm 8x8 add, a call", median(times) * 1e9, "ns", 60, "lower"});
    record({"warm 8x8 add, heap allocations in 100,000 calls", static_cast<double>(allocated), "", 0, "lower"});
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

// Six layers of a softmax, an activation and a sum over the rows.
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

// Of warm calls. The fastest of several is faster than a first call by the noise of a call, which is 0.4 ms of 40 ms.
template <class Seconds>
double medianOfThree(const Seconds& call) {
  const double first = call();
  const double second = call();
  return median({first, second, call()});
}

// The encoder at 100 numbers of sentences: programs, new shapes against warm calls, memory, and kernels of any size against constant ones.
void hundredShapes(benchmark::State& state) {
  EncoderProgram encoder = encoderProgram();
  FusionExecutorCache cache(std::move(encoder.fusion), {.threads = 1});
  const auto secondsFor = [&](FusionExecutorCache& of, int64_t sentences) {
    const std::vector<Argument> in = encoder.inputs(sentences);
    return secondsOf([&] { (void)of.runFusionWithInputs(in); });
  };
  for (auto _ : state) {
    std::vector<double> more;    // of the first call of a shape over a warm one
    std::vector<Memory> memory;  // after each 50 shapes
    for (int64_t i = 0; i < 100; i++) {
      const int64_t sentences = 2 + 37 * i % 100;  // long and short ones in turn
      const int64_t before = cache.plansCompiled();
      const double first = secondsFor(cache, sentences);
      const double warm = medianOfThree([&] { return secondsFor(cache, sentences); });
      if (cache.plansCompiled() == before) {
        more.push_back(first - warm);
      }
      if (i % 50 == 49) {
        // A cache keeps 8 shapes of a class: these.
        for (const int64_t kept : {3, 5, 7, 9, 11, 13, 15, 17, 16, 32, 48, 64, 80, 96}) {
          (void)secondsFor(cache, kept);
        }
        memory.emplace_back();
      }
    }
    FusionExecutorCache constant(encoderProgram().fusion, {.threads = 1, .sharePlans = false});
    std::vector<double> ratios;  // the speed of kernels of any size over that of constant ones
    for (const int64_t sentences : {7, 32, 64}) {
      (void)secondsFor(constant, sentences);
      (void)secondsFor(cache, sentences);
      double least = 1e9;
      double leastConstant = 1e9;
      for (int round = 0; round < 9; round++) {
        least = std::min(least, secondsFor(cache, sentences));
        leastConstant = std::min(leastConstant, secondsFor(constant, sentences));
      }
      ratios.push_back(leastConstant / least);
    }
    state.SetIterationTime(median(more));
    record({"encoder at 100 numbers of rows, compiled programs", static_cast<double>(cache.plansCompiled()), "", 4,
            "lower"});
    record({"encoder, the first call of a new shape of a known class over a warm call", median(more) * 1e3, "ms", 1,
            "lower"});
    record({"encoder, resident memory that the second 50 numbers of rows add", memory[1].resident - memory[0].resident,
            "MiB", std::nullopt, "lower"});
    record({"encoder, heap in use that the second 50 numbers of rows add", memory[1].heap - memory[0].heap, "MiB",
            kMostHeapMiB, "lower"});
    record(
        {"encoder, kernels of any size against constant ones", *std::ranges::min_element(ratios), "", 0.97, "higher"});
  }
}

// A layer of tensor parallel ranks, at 40 numbers of rows.
void shapesOnRanks(benchmark::State& state) {
  for (auto _ : state) {
    std::mutex mutex;
    std::vector<double> more;  // of the first call of a shape over a warm one, on rank 0
    runLoopback(state.range(0), [&](Communicator& comm) {
      auto fusion = std::make_unique<Fusion>();
      std::vector<Argument> weights;
      {
        const FusionGuard guard(fusion.get());
        const DeviceMesh mesh = DeviceMesh::create({{"tp", comm.size()}});
        TensorView* x = makeContigTensor(2);
        TensorView* w0 = makeContigConcreteTensor({4 * kEncoderFeatures, kEncoderFeatures});
        TensorView* w1 = makeContigConcreteTensor({kEncoderFeatures, 4 * kEncoderFeatures});
        for (TensorView* in : {x, w0, w1}) {
          fusion->addInput(in);
          in->setDeviceMesh(mesh);
        }
        for (const auto& [w, dim] : {std::pair(w0, 0), std::pair(w1, 1)}) {
          w->outer_split(dim, comm.size());
          w->axis(dim)->parallelize(ParallelType::DIDx);
          weights.push_back(shardTensor(randomTensor(w->constantShape(), DataType::Float, 2), w, comm.rank()).clone());
        }
        fusion->addOutput(layer_norm(add(x, linear(tanh_gelu(linear(x, w0)), w1)),
                                     std::vector<int64_t>{kEncoderFeatures}, nullptr, nullptr, 1e-12)
                              .output);
      }
      FusionExecutorCache cache(std::move(fusion), {.communicator = &comm, .threads = 1});
      for (int64_t i = 0; i < 40; i++) {
        std::vector<Argument> in = {
            randomTensor({comm.size() * (2 + 17 * i % 40), kEncoderFeatures}, DataType::Float, 1)};
        in.insert(in.end(), weights.begin(), weights.end());
        const auto call = [&] {
          comm.barrier(comm.world());
          return secondsOf([&] { (void)cache.runFusionWithInputs(in); });
        };
        const int64_t before = cache.plansCompiled();
        const double first = call();
        const double warm = medianOfThree(call);
        const std::lock_guard lock(mutex);
        if (cache.plansCompiled() == before && comm.rank() == 0) {
          more.push_back(first - warm);
        }
      }
    });
    state.SetIterationTime(median(more));
    record({fmt::format("layer on {} ranks, the first call of a new shape of a known class over a warm call",
                        state.range(0)),
            median(more) * 1e3, "ms", 2, "lower"});
  }
}

BENCHMARK(warmAdd)->Iterations(1)->UseManualTime()->Unit(benchmark::kNanosecond);
BENCHMARK(longChain)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(binding)->Iterations(1)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(hundredShapes)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK(shapesOnRanks)->Arg(2)->Arg(4)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
