// How long planning takes: a pair never seen before, and one that was.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <random>

#include "figures.h"
#include "multidevice/sharding/plan_memo.h"

namespace meshfuse {
namespace {

// Every axis is replicated, partial, or owns a digit that is free.
ShardState randomPlacement(std::mt19937& rng, const DeviceMesh& mesh, const std::vector<int64_t>& extents, bool block,
                           bool sums) {
  ShardState state{mesh, {}, {}};
  std::vector<std::vector<Digit>> owned(extents.size());
  for (int axis = 0; axis < mesh.numAxes(); axis++) {
    const int64_t n = mesh.axisSize(axis).constValue();
    const size_t k = rng() % (extents.size() + 1 + (sums ? 1 : 0));
    if (k > extents.size()) {
      state.partial.push_back(axis);
    }
    std::vector<int64_t> strides;
    for (int64_t s = 1; k < extents.size() && s * n <= extents[k]; s *= 2) {
      std::vector<Digit> with = owned[k];
      with.push_back({0, s, n, Owner::device(axis)});
      if (!fillLocal(0, extents[k], with).isOpaque()) {
        strides.push_back(s);
      }
    }
    if (!strides.empty()) {
      owned[k].push_back(
          {static_cast<int>(k), block ? strides.back() : strides[rng() % strides.size()], n, Owner::device(axis)});
    }
  }
  for (size_t k = 0; k < extents.size(); k++) {
    state.dims.push_back(fillLocal(static_cast<int>(k), extents[k], owned[k]));
  }
  return state;
}

// Planning is one thread's work: its processor time says what it costs, however busy the machine is.
double cpuSecondsOf(const std::function<void()>& call) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double start = now();
  call();
  return now() - start;
}

PlanOptions bigTensor(bool everything) {
  PlanOptions options;
  options.alpha = 1e4;
  options.alphaPeer = 1e4;
  if (everything) {
    options.sums = PartialSums::Moved;
  }
  return options;
}

// Arguments: sizes of the axes; 1: all kinds of steps, 0: those that are executed today. Reports quantiles over 400 random pairs.
void coldPlan(benchmark::State& state) {
  std::vector<DeviceMesh::Axis> axes;
  for (int i = 0; i < 3; i++) {
    if (state.range(i) > 1) {
      axes.emplace_back(std::string(1, static_cast<char>('x' + i)), state.range(i));
    }
  }
  const DeviceMesh mesh = DeviceMesh::create(axes);
  const std::vector<int64_t> extents{4096, 8192};
  const PlanOptions options = bigTensor(state.range(3) != 0);
  std::vector<double> times;
  for (auto _ : state) {
    std::mt19937 rng(7);
    for (int k = 0; k < 400; k++) {
      const ShardState from = randomPlacement(rng, mesh, extents, k % 2 == 0, true);
      const ShardState to = randomPlacement(rng, mesh, extents, k % 2 == 0, false);
      times.push_back(1e3 * cpuSecondsOf([&] { benchmark::DoNotOptimize(planRedistribution(from, to, options)); }));
    }
  }
  std::sort(times.begin(), times.end());
  state.counters["p50_ms"] = times[times.size() / 2];
  state.counters["p90_ms"] = times[times.size() * 9 / 10];
  state.counters["max_ms"] = times.back();
  if (state.range(0) == 4) {
    record({state.range(3) != 0 ? "plan 4x4x4, all steps, p90" : "plan 4x4x4, p90", times[times.size() * 9 / 10], "ms",
            2, "lower"});
  }
}
BENCHMARK(coldPlan)
    ->Args({4, 4, 4, 1})
    ->Args({4, 4, 4, 0})
    ->Args({16, 8, 1, 1})
    ->Args({8, 8, 2, 1})
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

void rememberedPlan(benchmark::State& state) {
  const DeviceMesh mesh = DeviceMesh::create({{"x", 4}, {"y", 4}, {"z", 4}});
  const std::vector<int64_t> extents{4096, 8192};
  std::mt19937 rng(7);
  std::vector<std::pair<ShardState, ShardState>> pairs;
  for (int k = 0; k < 64; k++) {
    ShardState from = randomPlacement(rng, mesh, extents, false, true);
    pairs.emplace_back(std::move(from), randomPlacement(rng, mesh, extents, false, false));
  }
  const PlanOptions options = bigTensor(false);
  PlanMemo plans;
  for (const auto& [from, to] : pairs) {
    benchmark::DoNotOptimize(&plans.plan(from, to, options));
  }
  constexpr int kCalls = 20000;
  for (auto _ : state) {
    const double seconds = cpuSecondsOf([&] {
      for (int k = 0; k < kCalls; k++) {
        const auto& [from, to] = pairs[static_cast<size_t>(k) % pairs.size()];
        benchmark::DoNotOptimize(&plans.plan(from, to, options));
      }
    });
    state.SetIterationTime(seconds / kCalls);
    record({"remembered plan", seconds / kCalls * 1e6, "us", 1, "lower"});
  }
}
BENCHMARK(rememberedPlan)->UseManualTime()->Iterations(20)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
