// How long does a program take whose collectives can run beside its kernels, against the longer of both alone? On virtual ranks with a link
// that takes time but no processor; the copies and sums of a collective take processors from the kernels.
#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "figures.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {
namespace {

constexpr int64_t kRanks = 2;
constexpr LoopbackLink kLink{.delay = std::chrono::microseconds(100), .bytesPerSecond = 2e8};
constexpr int kRounds = 9;

enum class Parts : uint8_t { Work, Communication, Both };

// A tensor with a term on each rank: its sum over dim 0 is an all-reduce.
TensorView* terms(Fusion& f, const DeviceMesh& mesh, std::vector<int64_t> shape) {
  shape.insert(shape.begin(), kRanks);
  TensorView* x = makeContigConcreteTensor(f, shape);
  f.addInput(x);
  x->setDeviceMesh(mesh);
  x->outer_split(0, kRanks);
  x->axis(0)->parallelize(ParallelType::DIDx);
  return x;
}

TensorView* replica(Fusion& f, const DeviceMesh& mesh, const std::vector<int64_t>& shape) {
  TensorView* x = makeContigConcreteTensor(f, shape);
  f.addInput(x);
  x->setDeviceMesh(mesh);
  return x;
}

using Build = std::unique_ptr<Fusion> (*)(Parts parts);

std::unique_ptr<Fusion> matmulAndAllReduce(Parts parts) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(kRanks);
  if (parts != Parts::Communication) {
    fusion->addOutput(matmul(replica(*fusion, mesh, {1536, 1024}), replica(*fusion, mesh, {1024, 1536})));
  }
  if (parts != Parts::Work) {
    TensorView* sums = sum(terms(*fusion, mesh, {1 << 20}), {0});
    sums->setDeviceMesh(mesh);
    fusion->addOutput(sums);
  }
  return fusion;
}

// Four linear layers backward, the batch over the ranks: from each layer's gradient dy come dx = dy w and dw = dy^T x, whose terms are
// added up over the ranks.
std::unique_ptr<Fusion> backward(Parts parts) {
  constexpr int64_t kLayers = 4, kRows = 1024, kFeatures = 768;
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(kRanks);
  if (parts == Parts::Communication) {
    for (int64_t layer = 0; layer < kLayers; layer++) {
      TensorView* dw = sum(terms(*fusion, mesh, {kFeatures, kFeatures}), {0});
      dw->setDeviceMesh(mesh);
      fusion->addOutput(dw);
    }
    return fusion;
  }
  TensorView* dy = terms(*fusion, mesh, {kRows, kFeatures});
  for (int64_t layer = 0; layer < kLayers; layer++) {
    TensorView* x = terms(*fusion, mesh, {kRows, kFeatures});
    TensorView* w = replica(*fusion, mesh, {kFeatures, kFeatures});
    TensorView* dw = matmul(transpose(dy, 1, 2), x);
    if (parts == Parts::Both) {
      dw = sum(dw, {0});
      dw->setDeviceMesh(mesh);
    }
    fusion->addOutput(dw);
    dy = matmul(dy, w);
  }
  fusion->addOutput(dy);
  return fusion;
}

std::vector<Argument> argumentsOf(const Fusion& fusion, int64_t rank) {
  std::vector<Argument> arguments;
  for (const Val* in : fusion.inputs()) {
    const TensorView* tv = in->asTensor();
    arguments.emplace_back(shardTensor(randomTensor(tv->constantShape(), tv->dtype(), in->id()), tv, rank).clone());
  }
  return arguments;
}

// Binds this thread, and the threads that it will start, to one core. Launchers bind ranks in the same way. Without it the system may run the
// kernels of two ranks on one core. No effect if the core does not exist.
void bindToCore(int64_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

void overlap(benchmark::State& state, const char* name, Build build) {
  for (auto _ : state) {
    std::array<std::vector<double>, 3> times;
    const auto body = [&](Communicator& comm) {
      bindToCore(comm.rank());
      std::array<std::unique_ptr<FusionExecutorCache>, 3> caches;
      std::array<std::vector<Argument>, 3> arguments;
      for (const Parts parts : {Parts::Work, Parts::Communication, Parts::Both}) {
        const auto k = static_cast<size_t>(parts);
        std::unique_ptr<Fusion> fusion = build(parts);
        arguments[k] = argumentsOf(*fusion, comm.rank());
        caches[k] = std::make_unique<FusionExecutorCache>(std::move(fusion),
                                                          ExecutorOptions{.communicator = &comm, .threads = 1});
        (void)caches[k]->runFusionWithInputs(arguments[k]);
      }
      for (int round = 0; round < kRounds; round++) {
        for (size_t k = 0; k < caches.size(); k++) {
          comm.barrier(comm.world());
          const double seconds = secondsOf([&] {
            (void)caches[k]->runFusionWithInputs(arguments[k]);
            comm.barrier(comm.world());
          });
          if (comm.rank() == 0) {
            times[k].push_back(seconds - std::chrono::duration<double>(kLink.delay).count());  // of the barrier
          }
        }
      }
    };
    runLoopback(kRanks, body, {.link = kLink});
    std::vector<double> ratios;
    for (int round = 0; round < kRounds; round++) {
      ratios.push_back(times[2][round] / std::max(times[0][round], times[1][round]));
    }
    state.SetIterationTime(median(times[2]));
    record({std::string(name) + ", over the longer of both alone", median(ratios), "x", 1.15, "lower"});
    for (size_t k = 0; k < times.size(); k++) {
      static constexpr const char* kNames[] = {"kernels alone", "collectives alone", "both"};
      record({std::string(name) + ", " + kNames[k], median(times[k]) * 1e3, "ms", std::nullopt, "lower"});
    }
  }
}

BENCHMARK_CAPTURE(overlap, matmul_and_all_reduce, "matmul and an independent all-reduce", matmulAndAllReduce)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(overlap, backward, "backward of 4 layers with its gradient reductions", backward)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
