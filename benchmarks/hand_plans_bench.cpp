// Is an automatic plan as fast as the best plan that a person would write?
//
// Two GPT blocks on virtual ranks, after a calibration. A plan by hand pins the inputs and the tensors that such plans are known by; an automatic
// plan of the rest completes it. Two times are compared: that of the model, and the measured one. Nothing else may run on the machine.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
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

constexpr int64_t kLayers = 2;
constexpr int64_t kRounds = 20;
constexpr double kSeconds = 0.03;               // that a measurement takes
constexpr std::string_view kItself = "itself";  // the automatic plan again: how far two measurements of one plan differ
constexpr double kLargest = 0.1;                // of the inputs: no subnormal numbers, which are slow

struct Sizes {
  int64_t batch = 4;
  int64_t tokens = 128;
  int64_t features = 128;
  int64_t heads = 4;
};

// Tensors that plans by hand pin.
struct Block {
  std::unique_ptr<Fusion> fusion = std::make_unique<Fusion>();
  std::vector<TensorView*> stream;   // [batch, tokens, features]: the input, results of norms, and sums
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

// The dim of each kind of tensor that is cut into a part for each rank.
struct HandPlan {
  std::string name;
  int64_t stream;
  int64_t heads;
  int64_t hidden;
  int64_t columns;
  int64_t rows;
};

const std::vector<HandPlan> kHandPlans{
    {.name = "data parallel", .stream = 0, .heads = 0, .hidden = 0, .columns = kWhole, .rows = kWhole},
    // Megatron
    {.name = "tensor parallel", .stream = kWhole, .heads = 1, .hidden = 2, .columns = 0, .rows = 1},
    // Megatron, with norms and sums on parts of the tokens
    {.name = "sequence parallel", .stream = 1, .heads = 1, .hidden = 2, .columns = 0, .rows = 1},
    // data parallel, and no rank holds a whole matrix
    {.name = "zero", .stream = 0, .heads = 0, .hidden = 0, .columns = 0, .rows = 0},
    {.name = "replicated", .stream = kWhole, .heads = kWhole, .hidden = kWhole, .columns = kWhole, .rows = kWhole}};

void pin(const std::vector<TensorView*>& tensors, int64_t dim, int64_t ranks) {
  for (TensorView* tv : tensors) {
    tv->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
    if (dim != kWhole) {
      tv->outer_split(dim, ranks)->axis(dim)->parallelize(ParallelType::DIDx);
    }
  }
}

void pin(const Block& b, const HandPlan& plan, int64_t ranks) {
  pin(b.stream, plan.stream, ranks);
  pin(b.heads, plan.heads, ranks);
  pin(b.hidden, plan.hidden, ranks);
  pin(b.columns, plan.columns, ranks);
  pin(b.rows, plan.rows, ranks);
  pin(b.norms, kWhole, ranks);
}

DistributedConfig calibrated(int64_t ranks) {
  DistributedConfig machines;
  runLoopback(ranks, [&](Communicator& comm) {
    const DistributedConfig own = calibrate(comm, {});
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
  std::vector<double> measured;  // by round
};

// All plans in each round, so that a slower time of the machine slows all of them; each round begins with another one.
void measure(std::vector<Times>& plans, int64_t ranks) {
  runLoopback(ranks, [&](Communicator& comm) {
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
      for (const int64_t turn : indices(plans)) {
        const int64_t k = (round + turn) % std::ssize(plans);
        const double seconds = timeSteps(*caches[k], inputs[k], comm, kSeconds).seconds;
        if (comm.rank() == 0) {
          plans[k].measured.push_back(seconds);
        }
      }
    }
  });
}

void compareWithHandPlans(benchmark::State& state) {
  const int64_t ranks = state.range(0);
  const Sizes sizes{.batch = state.range(1), .tokens = state.range(2), .features = state.range(3)};
  static std::map<int64_t, DistributedConfig> machines;  // by ranks
  if (!machines.contains(ranks)) {
    machines[ranks] = calibrated(ranks);
  }
  for (auto _ : state) {
    std::vector<Times> all;
    const auto add = [&](std::string_view name, Block block) {
      const AutoPlan plan = autoParallelize(*block.fusion, machines.at(ranks), {.alternatives = false});
      all.push_back({std::string(name), std::move(block.fusion), plan.seconds, {}});
    };
    add("automatic", gpt(sizes));
    add(kItself, gpt(sizes));
    for (const HandPlan& plan : kHandPlans) {
      Block block = gpt(sizes);
      pin(block, plan, ranks);
      add(plan.name, std::move(block));
    }
    measure(all, ranks);
    const Times& automatic = all[0];
    double byModel = 0;
    double byClock = 0;
    for (const Times& plan : all | std::views::drop(1)) {
      const double model = automatic.model / plan.model;
      const double clock = median(mapped(
          indices(plan.measured), [&](int64_t round) { return automatic.measured[round] / plan.measured[round]; }));
      fmt::print(stderr, "automatic over {:<18} {:.3f} by the model, {:.3f} measured, {:.2f} of {:.2f} ms predicted\n",
                 plan.name, model, clock, 1e3 * plan.model, 1e3 * median(plan.measured));
      if (plan.name != kItself) {
        byModel = std::max(byModel, model);
        byClock = std::max(byClock, clock);
      }
    }
    state.counters["by the model"] = byModel;
    state.counters["measured"] = byClock;
    const std::string what =
        fmt::format("automatic over best of five hand plans, GPT of {} x {} tokens, {} features, {} ranks", sizes.batch,
                    sizes.tokens, sizes.features, ranks);
    record({what + ", model", byModel, "x", 1.0, "lower"});
    record({what + ", measured", byClock, "x", 1.05, "lower"});
  }
}
BENCHMARK(compareWithHandPlans)
    ->Args({2, 4, 128, 128})
    ->Args({2, 4, 256, 64})
    ->Args({2, 8, 32, 256})
    ->Args({4, 4, 128, 128})
    ->Args({4, 4, 256, 64})
    ->Args({4, 8, 32, 256})
    ->ArgNames({"ranks", "batch", "tokens", "features"})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
