// How long a transformer on a grid of ranks takes from its annotations to planned redistributions: all passes of the global view.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <string>

#include "analysis/pass_context.h"
#include "figures.h"
#include "ir/fusion.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"
#include "preseg_passes/table.h"

namespace meshfuse {
namespace {

constexpr int64_t kLayers = 48;

TensorView* placed(Fusion& fusion, const std::vector<int64_t>& shape, const DeviceMesh& mesh, int dim,
                   std::string_view axis) {
  TensorView* tv = makeContigConcreteTensor(fusion, shape, DataType::Float);
  fusion.addInput(tv);
  tv->setDeviceMesh(mesh);
  tv->outer_split(dim, mesh.size(axis));
  tv->axis(dim)->parallelize(mesh.axis(axis));
  return tv;
}

// Batch over dp, heads and hidden features over tp; nothing else is annotated.
std::unique_ptr<Fusion> transformer() {
  constexpr int64_t kBatch = 8, kTokens = 2048, kFeatures = 2048, kHeads = 16;
  auto owned = std::make_unique<Fusion>();
  Fusion& f = *owned;
  const DeviceMesh mesh = DeviceMesh::create({{"dp", 4}, {"tp", 8}});
  TensorView* x = placed(f, {kBatch, kTokens, kFeatures}, mesh, 0, "dp");
  for (int64_t layer = 0; layer < kLayers; layer++) {
    TensorView* n = layerNormOver(x, 1, nullptr, nullptr, 1e-5).output;
    auto heads = [&] {
      TensorView* w = placed(f, {kFeatures, kFeatures}, mesh, 0, "tp");
      return permute(reshape(linear(n, w), {kBatch, kTokens, kHeads, kFeatures / kHeads}), {0, 2, 1, 3});
    };
    TensorView* q = heads();
    TensorView* k = heads();
    TensorView* v = heads();
    TensorView* mixed = matmul(softmax(matmul(q, transpose(k, 2, 3)), -1), v);
    mixed = reshape(permute(mixed, {0, 2, 1, 3}), {kBatch, kTokens, kFeatures});
    x = add(x, linear(mixed, placed(f, {kFeatures, kFeatures}, mesh, 1, "tp")));
    TensorView* hidden = linear(layerNormOver(x, 1, nullptr, nullptr, 1e-5).output,
                                placed(f, {4 * kFeatures, kFeatures}, mesh, 0, "tp"));
    x = add(x, linear(tanh_gelu(hidden), placed(f, {kFeatures, 4 * kFeatures}, mesh, 1, "tp")));
  }
  f.addOutput(x);
  return owned;
}

// One thread's work: its processor time says what it costs, however busy the machine is.
double cpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void shardTransformer(benchmark::State& state) {
  const std::unique_ptr<Fusion> fusion = transformer();
  std::map<std::string, double> spent;  // by pass
  int64_t rounds = 0;
  double total = 0;
  double first = 0;  // the round that finds no plan made before
  for (auto _ : state) {
    state.PauseTiming();
    const std::unique_ptr<Fusion> copy = fusion->clone();
    PassContext context(*copy);
    state.ResumeTiming();
    for (const PassRow<Fusion, PassContext>& row : presegPasses()) {
      const double start = cpuSeconds();
      if (row.run(*copy, context)) {
        context.changed(row.keeps);
      }
      spent[std::string(row.name)] += cpuSeconds() - start;
    }
    double all = 0;
    for (const auto& [pass, seconds] : spent) {
      all += seconds;
    }
    first = rounds == 0 ? all : first;
    total = all;
    rounds++;
  }
  for (const auto& [pass, seconds] : spent) {
    state.counters[pass + " ms"] = 1e3 * seconds / static_cast<double>(rounds);
  }
  record({"48 layers on a 2-D mesh, annotated to planned, the first time", 1e3 * first, "ms", 250, "lower"});
  record(
      {"48 layers on a 2-D mesh, annotated to planned", 1e3 * total / static_cast<double>(rounds), "ms", 250, "lower"});
}
BENCHMARK(shardTransformer)->Unit(benchmark::kMillisecond)->Iterations(3);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
