// How far are predicted times from measured ones after a calibration, and do they put two plans of a program in the right order?
//
// Argument: the number of virtual ranks. Each program runs with the plan that is chosen, on several ranks also with plans in which inputs are
// pinned. Plans with the same program are one plan, which is measured once. The time of a call is predicted from the steps of the host program,
// as by `meshfuse explain --machine`, and from the model of plans. Nothing else may run on the machine: measurements during which other
// programs took processors are repeated, and a line says how much they took of the calibration.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <string>
#include <vector>

#include "autoplan/autoplan.h"
#include "base/ranges.h"
#include "exec/calibrate.h"
#include "exec/fusion_executor_cache.h"
#include "exec/timed_steps.h"
#include "figures.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/loopback/loopback.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

constexpr int64_t kRounds = 5;     // of the plans of a program
constexpr double kSeconds = 0.03;  // that a measurement takes, in a round
// Inputs are in [-kLargest, kLargest], so that results of products and functions have the size that they have in networks. From sums of products in
// [-1, 1], exp and tanh_gelu make subnormal numbers, with which some processors compute 20 times slower than any prediction.
constexpr double kLargest = 0.1;
constexpr double kDifference = 1.2;  // plans whose times differ by this factor have an order

struct Program {
  std::string name;
  std::function<TensorView*(Fusion&)> body;
};

TensorView* input(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::Float) {
  TensorView* tv = makeContigConcreteTensor(f, shape, type);
  f.addInput(tv);
  return tv;
}

Program mlp(int64_t rows, int64_t features, int64_t layers) {
  return {fmt::format("mlp of {} layers, {} rows, {} features", layers, rows, features), [=](Fusion& f) {
            TensorView* x = input(f, {rows, features});
            for (int64_t k = 0; k < layers; k++) {
              TensorView* h = relu(linear(x, input(f, {4 * features, features}), input(f, {4 * features})));
              x = add(x, linear(h, input(f, {features, 4 * features})));
            }
            return x;
          }};
}

// The gradients of both weights of an MLP are added to them.
Program training(int64_t rows, int64_t features) {
  return {fmt::format("training step, {} rows, {} features", rows, features), [=](Fusion& f) {
            TensorView* x = input(f, {rows, features});
            TensorView* target = input(f, {rows, features});
            TensorView* w1 = input(f, {4 * features, features});
            TensorView* w2 = input(f, {features, 4 * features});
            TensorView* h = linear(x, w1);
            TensorView* a = tanh_gelu(h);
            TensorView* dy = mul(sub(linear(a, w2), target), 2.0);
            TensorView* dh = tanh_gelu_backward(matmul(dy, w2), h);
            f.aliasOutputToInput(sub(w2, mul(matmul(transpose(dy), a), 1e-9)), w2);
            f.aliasOutputToInput(sub(w1, mul(matmul(transpose(dh), x), 1e-9)), w1);
            return sum(mul(dy, dy), {0, 1});
          }};
}

Program transformer(int64_t batch, int64_t tokens, int64_t features) {
  return {fmt::format("transformer layer, {} x {} tokens, {} features", batch, tokens, features), [=](Fusion& f) {
            constexpr int64_t kHeads = 4;
            const int64_t e = features;
            TensorView* x = input(f, {batch, tokens, e});
            const auto norm = [&](TensorView* t) {
              return layerNormOver(t, 1, input(f, {e}), input(f, {e}), 1e-5).output;
            };
            const auto heads = [&](TensorView* t) {
              return permute(reshape(linear(t, input(f, {e, e})), {batch, tokens, kHeads, e / kHeads}), {0, 2, 1, 3});
            };
            TensorView* n = norm(x);
            TensorView* q = heads(n);
            TensorView* k = heads(n);
            TensorView* v = heads(n);
            TensorView* mixed = matmul(softmax(matmul(q, transpose(k, 2, 3)), -1), v);
            x = add(x, linear(reshape(permute(mixed, {0, 2, 1, 3}), {batch, tokens, e}), input(f, {e, e})));
            TensorView* hidden = tanh_gelu(linear(norm(x), input(f, {4 * e, e})));
            return add(x, linear(hidden, input(f, {e, 4 * e})));
          }};
}

Program rows(const std::string& name, int64_t rows, int64_t columns, TensorView* (*op)(TensorView*)) {
  return {fmt::format("{} of {} x {}", name, rows, columns), [=](Fusion& f) { return op(input(f, {rows, columns})); }};
}

Program table(int64_t tokens, int64_t words, int64_t features) {
  return {fmt::format("table and head, {} of {} words, {} features", tokens, words, features), [=](Fusion& f) {
            TensorView* ids = input(f, {tokens}, DataType::Int);
            TensorView* x = embedding_fwd(ids, input(f, {words, features}));
            return linear(tanh(x), input(f, {words, features}));
          }};
}

std::vector<Program> programs() {
  const auto softmaxOf = [](TensorView* x) { return softmax(x, -1); };
  const auto columnSums = [](TensorView* x) { return sum(mul(x, x), {0}); };
  const auto gelu = [](TensorView* x) { return tanh_gelu(add(x, 1.0)); };
  const auto scaled = [](TensorView* x) { return add(mul(x, 2.0), 1.0); };
  return {mlp(64, 64, 2),
          mlp(256, 128, 2),
          mlp(1024, 128, 1),
          mlp(512, 256, 2),
          mlp(2048, 64, 3),
          mlp(128, 512, 2),
          mlp(4096, 128, 1),
          training(64, 64),
          training(256, 128),
          training(1024, 64),
          training(128, 256),
          training(2048, 128),
          training(512, 256),
          transformer(2, 64, 64),
          transformer(4, 128, 64),
          transformer(8, 64, 128),
          transformer(1, 256, 64),
          transformer(4, 128, 128),
          transformer(2, 256, 256),
          transformer(16, 32, 64),
          rows("softmax", 1024, 1024, softmaxOf),
          rows("softmax", 128, 4096, softmaxOf),
          rows("sums of columns", 4096, 256, columnSums),
          rows("sums of columns", 256, 1024, columnSums),
          rows("gelu", 512, 512, gelu),
          rows("gelu", 2048, 1024, gelu),
          rows("scaling", 4096, 1024, scaled),
          table(256, 1024, 64),
          table(1024, 4096, 64),
          table(512, 512, 256)};
}

std::unique_ptr<Fusion> built(const Program& program) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  fusion->addOutput(program.body(*fusion));
  return fusion;
}

// Pins an input, to rows or whole.
void pin(Fusion& fusion, int64_t number, bool byRows, int64_t ranks) {
  TensorView* tv = fusion.inputs()[number]->asTensor();
  tv->setDeviceMesh(DeviceMesh::createForNumDevices(ranks));
  if (byRows) {
    tv->outer_split(0, ranks)->axis(0)->parallelize(ParallelType::DIDx);
  }
}

struct Times {
  int64_t sameAs = 0;            // the first plan with the same program, which is measured for all of them
  std::vector<double> measured;  // by round
  double steps = 0;              // predicted from the steps
  double plan = 0;               // predicted by the plan

  double seconds() const { return median(measured); }
};

// A machine may be slower for a while, so the plans of a program are measured in turns, and plans are compared in the same round.
double measuredRatio(const Times& a, const Times& b) {
  return median(mapped(indices(a.measured), [&](int64_t round) { return a.measured[round] / b.measured[round]; }));
}

// The parts that a rank holds of the inputs of a program. Plans that shard an input in the same way read the same buffer: the same program takes
// The parts that a rank holds of the inputs of a program. Plans that shard an input in the same way read the same buffer: the same program
// has taken up to twice as long with another buffer of a few MB.
class Inputs {
 public:
  explicit Inputs(int64_t rank) : rank_(rank) {}

  Tensor of(const TensorView* tv, int64_t number) {
    const auto [entry, isNew] = parts_.try_emplace({number, tv->hasDeviceMesh() ? shardState(tv).toString() : "whole"});
    if (isNew) {
      const bool isIndex = !isFloatingPoint(tv->dtype());
      const Tensor whole =
          randomTensor(tv->constantShape(), tv->dtype(), 1, isIndex ? 0 : -kLargest, isIndex ? 99 : kLargest);
      entry->second = shardTensor(whole, tv, rank_).clone();
    }
    return entry->second;
  }

 private:
  int64_t rank_;
  std::map<std::pair<int64_t, std::string>, Tensor> parts_;
};

// The program that each rank runs, by rank.
std::vector<std::string> programsOf(FusionExecutorCache& cache, const std::vector<Argument>& inputs,
                                    Communicator& comm) {
  (void)cache.runFusionWithInputs(inputs);
  return comm.exchange(cache.hostProgram()->fusion->toString());
}

// Each round begins with another plan.
std::vector<Times> timesOf(Communicator& comm, const std::vector<std::unique_ptr<Fusion>>& plans,
                           const DistributedConfig& machines) {
  std::vector<std::unique_ptr<FusionExecutorCache>> caches;
  Inputs buffers(comm.rank());
  std::vector<std::vector<Argument>> inputs;
  std::vector<std::vector<std::string>> programs;
  std::vector<Times> times(plans.size());
  std::vector<int64_t> measured;
  for (const int64_t k : indices(plans)) {
    caches.push_back(std::make_unique<FusionExecutorCache>(plans[k]->clone(), ExecutorOptions{.communicator = &comm}));
    std::vector<Argument>& own = inputs.emplace_back();
    for (const int64_t number : indices(plans[k]->inputs())) {
      own.emplace_back(buffers.of(plans[k]->inputs()[number]->asTensor(), number));
    }
    programs.push_back(programsOf(*caches[k], own, comm));
    times[k].sameAs = std::ranges::find(programs, programs[k]) - programs.begin();
    times[k].steps = sumOf(predictSteps(*caches[k]->hostProgram(), machines));
    if (times[k].sameAs == k) {
      measured.push_back(k);
    }
  }
  for (int64_t round = 0; round < kRounds; round++) {
    for (const int64_t turn : indices(measured)) {
      const int64_t k = measured[(round + turn) % std::ssize(measured)];
      times[k].measured.push_back(timeSteps(*caches[k], inputs[k], comm, kSeconds).seconds);
    }
  }
  for (Times& of : times) {
    of.measured = times[of.sameAs].measured;
  }
  return times;
}

double percent(int64_t part, int64_t all) {
  return 100 * static_cast<double>(part) / static_cast<double>(std::max<int64_t>(all, 1));
}

void predict(benchmark::State& state) {
  const int64_t ranks = state.range(0);
  DistributedConfig machines;
  for (auto _ : state) {
    runLoopback(ranks, [&](Communicator& comm) {
      const DistributedConfig own = calibrate(comm, {});
      if (comm.rank() == 0) {
        machines = own;
      }
    });
    std::vector<double> stepErrors;
    std::vector<double> planErrors;
    int64_t pairs = 0;
    int64_t rightBySteps = 0;
    int64_t rightByPlan = 0;
    for (const Program& program : programs()) {
      std::vector<std::unique_ptr<Fusion>> plans;
      std::vector<double> predicted;
      for (const int64_t variant : {0, 1, 2}) {
        if (variant > 0 && ranks == 1) {
          continue;
        }
        std::unique_ptr<Fusion>& fusion = plans.emplace_back(built(program));
        for (int64_t k = 0; variant == 1 && k < std::ssize(fusion->inputs()); k++) {
          pin(*fusion, k, false, ranks);
        }
        if (variant == 2) {
          pin(*fusion, std::ssize(fusion->inputs()) - 1, true, ranks);
        }
        predicted.push_back(
            autoParallelize(*fusion, machines, {.mesh = {{"x", ranks}}, .alternatives = false}).seconds);
      }
      std::vector<Times> all;
      runLoopback(ranks, [&](Communicator& comm) {
        std::vector<Times> own = timesOf(comm, plans, machines);
        if (comm.rank() == 0) {
          all = std::move(own);
        }
      });
      for (const int64_t variant : indices(all)) {
        Times& times = all[variant];
        times.plan = predicted[variant];
        const char* const names[] = {"chosen", "inputs whole", "last input by rows"};
        fmt::print(stderr, "{:<48} {:<20} measured {:>9.1f} us, steps {:>5.2f}, plan {:>5.2f} of it{}\n", program.name,
                   names[variant], times.seconds() * 1e6, times.steps / times.seconds(), times.plan / times.seconds(),
                   times.sameAs == variant ? "" : fmt::format(" (the program of: {})", names[times.sameAs]));
        for (const int64_t before : std::views::iota(int64_t{0}, variant)) {
          const Times& other = all[before];
          if (other.sameAs == times.sameAs) {
            continue;
          }
          const double ratio = measuredRatio(times, other);
          if (std::max(ratio, 1 / ratio) > kDifference) {
            const auto isRight = [&](double Times::*of) { return (times.*of < other.*of) == (ratio < 1); };
            pairs++;
            rightBySteps += isRight(&Times::steps) ? 1 : 0;
            rightByPlan += isRight(&Times::plan) ? 1 : 0;
            if (!isRight(&Times::plan)) {
              fmt::print(stderr, "  by the plan in the wrong order: {} takes {:.2f} of {}, predicted {:.2f}\n",
                         names[variant], ratio, names[before], times.plan / other.plan);
            }
          }
        }
      }
      stepErrors.push_back(100 * std::abs(all[0].steps / all[0].seconds() - 1));
      planErrors.push_back(100 * std::abs(all[0].plan / all[0].seconds() - 1));
    }
    state.counters["steps, error %"] = median(stepErrors);
    state.counters["plan, error %"] = median(planErrors);
    const std::string where = fmt::format(" on {} ranks", ranks);
    record({"time of the steps" + where + ", median error", median(stepErrors), "%", 15, "lower"});
    record({"time of the plan" + where + ", median error", median(planErrors), "%", std::nullopt, "lower"});
    if (ranks > 1) {
      record({"right order by steps" + where, percent(rightBySteps, pairs), "%", 95, "higher"});
      record({"right order by plans" + where, percent(rightByPlan, pairs), "%", 95, "higher"});
      fmt::print(stderr, "{} pairs of plans that differ by over 20%: {} in order by steps, {} by plans\n", pairs,
                 rightBySteps, rightByPlan);
    }
  }
}
BENCHMARK(predict)->Arg(1)->Arg(2)->Arg(4)->ArgName("ranks")->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace meshfuse

int main(int argc, char** argv) { return meshfuse::runBenchmarks(argc, argv); }
