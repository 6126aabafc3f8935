// Is an automatic plan as fast as the best plan that a person would write?
//
// Two GPT blocks on four virtual ranks, after a calibration. A plan by hand pins the inputs, and the tensors by which it is known; an automatic plan
// of the rest completes it. Two times are compared: that of the model, and the measured one. Nothing else may run on the machine.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "autoplan/autoplan.h"
#include "base/ranges.h"
#include "exec/calibrate.h"
#include "exec/fusion_executor_cache.h"
#include "exec/timed_steps.h"
#include "figures.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

constexpr int64_t kRanks = 4;
constexpr int64_t kLayers = 2;
constexpr int64_t kRounds = 5;    // the fastest one counts
constexpr double kSeconds = 0.2;  // that a measurement takes
constexpr double kLargest = 0.1;  // of the inputs: no subnormal numbers, which are slow

struct Sizes {
  int64_t batch = 4;
  int64_t tokens = 128;
  int64_t features = 128;
  int64_t heads = 4;
};

// Tensors that plans by hand pin.
struct Block {
  std::unique_ptr<Fusion> fusion = std::make_unique<Fusion>();
  std::vector<TensorView*> stream;   // [batch, tokens, features]: of norms, and what is added to them
  std::vector<TensorView*> heads;    // [batch, heads, tokens, features / heads]: queries, keys, values
  std::vector<TensorView*> hidden;   // [batch, tokens, 4 * features]
  std::vector<TensorView*> columns;  // weights [out, in] whose results are heads or hidden
  std::vector<TensorView*> rows;     // weights [out, in] that read those
  std::vector<TensorView*> norms;    // [features]
};

Block gpt(const Sizes& s) {
  Block b;
  Fusion& f = *b.fusion;
  const FusionGuard guard(&f);
  const auto input = [&](const std::vector<int64_t>& shape, std::vector<TensorView*>& kind) {
    kind.push_back(makeContigConcreteTensor(f, shape));
    f.addInput(kind.back());
    return kind.back();
  };
  const auto of = [](std::vector<TensorView*>& kind, TensorView* tv) {
    kind.push_back(tv);
    return tv;
  };
  const int64_t e = s.features;
  TensorView* x = input({s.batch, s.tokens, e}, b.stream);
  const auto norm = [&](TensorView* t) {
    return of(b.stream, layerNormOver(t, 1, input({e}, b.norms), input({e}, b.norms), 1e-5).output);
  };
  for (int64_t layer = 0; layer < kLayers; layer++) {
    TensorView* n = norm(x);
    const auto heads = [&] {
      return of(b.heads,
                permute(reshape(linear(n, input({e, e}, b.columns)), {s.batch, s.tokens, s.heads, e / s.heads}),
                        {0, 2, 1, 3}));
    };
    TensorView* q = heads();
    TensorView* k = heads();
    TensorView* v = heads();
    TensorView* mixed = matmul(softmax(matmul(q, transpose(k, 2, 3)), -1), v);
    TensorView* joined = reshape(permute(mixed, {0, 2, 1, 3}), {s.batch, s.tokens, e});
    x = of(b.stream, add(x, linear(joined, input({e, e}, b.rows))));
    TensorView* hidden = of(b.hidden, tanh_gelu(linear(norm(x), input({4 * e, e}, b.columns))));
    x = of(b.stream, add(x, linear(hidden, input({e, 4 * e}, b.rows))));
  }
  f.addOutput(x);
  return b;
}

constexpr int64_t kWhole = -1;

// `dim`: that is cut in four.
void pin(const std::vector<TensorView*>& tensors, int64_t dim) {
  for (TensorView* tv : tensors) {
    tv->setDeviceMesh(DeviceMesh::createForNumDevices(kRanks));
    if (dim != kWhole) {
      tv->outer_split(dim, kRanks)->axis(dim)->parallelize(ParallelType::DIDx);
    }
  }
}

void pinWeights(const Block& b, int64_t columns, int64_t rows) {
  pin(b.columns, columns);
  pin(b.rows, rows);
  pin(b.norms, kWhole);
}

struct HandPlan {
  std::string name;
  std::function<void(const Block&)> pins;
};

std::vector<HandPlan> handPlans() {
  return {{"data parallel",
           [](const Block& b) {
             pinWeights(b, kWhole, kWhole);
             pin(b.stream, 0);
             pin(b.heads, 0);
             pin(b.hidden, 0);
           }},
          {"tensor parallel",  // Megatron
           [](const Block& b) {
             pinWeights(b, 0, 1);
             pin(b.stream, kWhole);
             pin(b.heads, 1);
             pin(b.hidden, 2);
           }},
          {"sequence parallel",  // Megatron, with norms and sums on parts of the tokens
           [](const Block& b) {
             pinWeights(b, 0, 1);
             pin(b.stream, 1);
             pin(b.heads, 1);
             pin(b.hidden, 2);
           }},
          {"zero",  // data parallel, and no rank holds a whole weight
           [](const Block& b) {
             pinWeights(b, 0, 0);
             pin(b.stream, 0);
             pin(b.heads, 0);
             pin(b.hidden, 0);
           }},
          {"replicated", [](const Block& b) {
             pinWeights(b, kWhole, kWhole);
             pin(b.stream, kWhole);
             pin(b.heads, kWhole);
             pin(b.hidden, kWhole);
           }}};
}

DistributedConfig calibrated() {
  DistributedConfig machines;
  runLoopback(kRanks, [&](Communicator& comm) {
    const DistributedConfig own = calibrate(comm, {.seconds = 8});
    if (comm.rank() == 0) {
      machines = own;
    }
  });
  return machines;
}

struct Times {
  std::string name;
  std::unique_ptr<Fusion> fusion;
  double model = 0;
  double measured = std::numeric_limits<double>::infinity();
};

// All plans in each round, so that a slower time of the machine slows all of them.
void measure(std::vector<Times>& plans) {
  runLoopback(kRanks, [&](Communicator& comm) {
    std::vector<std::unique_ptr<FusionExecutorCache>> caches;
    std::vector<std::vector<Argument>> inputs;
    for (const Times& plan : plans) {
      caches.push_back(
          std::make_unique<FusionExecutorCache>(plan.fusion->clone(), ExecutorOptions{.communicator = &comm}));
      inputs.push_back(mapped(plan.fusion->inputs(), [&](const Val* in) {
        const TensorView* tv = in->asTensor();
        const Tensor whole = randomTensor(tv->constantShape(), tv->dtype(), 1, -kLargest, kLargest);
        return Argument(shardTensor(whole, tv, comm.rank()).clone());
      }));
    }
    for (int64_t round = 0; round < kRounds; round++) {
      for (const int64_t k : indices(plans)) {
        const double seconds = timeSteps(*caches[k], inputs[k], comm, kSeconds).seconds;
        if (comm.rank() == 0) {
          plans[k].measured = std::min(plans[k].measured, seconds);
        }
      }
    }
  });
}

// Arguments: batch, tokens, features.
void compareWithHandPlans(benchmark::State& state) {
  const Sizes sizes{.batch = state.range(0), .tokens = state.range(1), .features = state.range(2)};
  static const DistributedConfig machines = calibrated();
  for (auto _ : state) {
    std::vector<HandPlan> plans = handPlans();
    plans.push_back({"automatic", [](const Block&) {}});
    std::vector<Times> all;
    for (const HandPlan& plan : plans) {
      Block block = gpt(sizes);
      plan.pins(block);
      const AutoPlan completed = autoParallelize(*block.fusion, machines, {.alternatives = false});
      all.push_back({plan.name, std::move(block.fusion), completed.seconds});
    }
    measure(all);
    const Times automatic = std::move(all.back());
    all.pop_back();
    for (const Times& t : all) {
      fmt::print(stderr, "{:<18} model {:.3f}, measured {:.3f} of automatic, {:.2f} ms\n", t.name,
                 t.model / automatic.model, t.measured / automatic.measured, 1e3 * t.measured);
    }
    const double byModel = automatic.model / std::ranges::min(mapped(all, &Times::model));
    const double byClock = automatic.measured / std::ranges::min(mapped(all, &Times::measured));
    state.counters["by the model"] = byModel;
    state.counters["measured"] = byClock;
    const std::string what = fmt::format("automatic over best of five hand plans, GPT of {} x {} tokens, {} features",
                                         sizes.batch, sizes.tokens, sizes.features);
    record({what + ", model", byModel, "x", 1.0, "lower"});
    record({what + ", measured", byClock, "x", 1.05, "lower"});
  }
}
BENCHMARK(compareWithHandPlans)
    ->Args({4, 128, 128})
    ->Args({4, 256, 64})
    ->Args({8, 32, 256})
    ->ArgNames({"batch", "tokens", "features"})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
