// What do 100 shapes of a program cost: programs compiled, first calls of shapes of a known class, memory?
//
// A transformer block at 100 numbers of sentences and at 100 lengths, and the step of the demo at 100 numbers of rows, tensor parallel on 1, 2
// and 4 ranks that are threads. hundredShapes of host_path_bench does the same with an encoder.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>

#include "figures.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/sharding/shard_tensor.h"
#include "multidevice/transport/communicator.h"
#include "multidevice/transport/loopback/loopback.h"

namespace meshfuse {

namespace {

constexpr int64_t kShapes = 100;
constexpr int64_t kFeatures = 256;
constexpr int64_t kHeads = 8;
constexpr int64_t kBytes = 256;  // values of a byte
constexpr int64_t kContext = 16;
constexpr int64_t kEmbedding = 16;
constexpr int64_t kHidden = 512;

// A fusion on ranks: inputs of any size first, then weights, whose shards are `weights`.
struct Program {
  explicit Program(Communicator& world) : comm(world), mesh(DeviceMesh::create({{"tp", world.size()}})) {}

  TensorView* input(const std::vector<int64_t>& shape, DataType type) {
    TensorView* tv = makeContigConcreteTensor(shape, type);
    fusion->addInput(tv);
    tv->setDeviceMesh(mesh);
    return tv;
  }
  // Cut along `dim`; nothing: whole on each rank.
  TensorView* weight(const std::vector<int64_t>& shape, std::optional<int64_t> dim = std::nullopt) {
    TensorView* tv = input(shape, DataType::Float);
    if (dim) {
      tv->outer_split(*dim, comm.size());
      tv->axis(*dim)->parallelize(ParallelType::DIDx);
    }
    const double range = 1 / std::sqrt(static_cast<double>(shape.back()));
    const Tensor whole = randomTensor(shape, DataType::Float, std::size(weights) + 1, -range, range);
    weights.emplace_back(shardTensor(whole, tv, comm.rank()).clone());
    return tv;
  }

  Communicator& comm;
  DeviceMesh mesh;
  std::unique_ptr<Fusion> fusion = std::make_unique<Fusion>();
  std::vector<Argument> weights;
};

// x [sentences, words, features]
Program block(Communicator& comm) {
  Program p(comm);
  const FusionGuard guard(p.fusion.get());
  TensorView* x = p.input({-1, -1, kFeatures}, DataType::Float);
  const std::vector<IntExpr> shape = x->shape();
  const auto norm = [](TensorView* y) { return layerNormOver(y, 1, nullptr, nullptr, 1e-5).output; };
  TensorView* y = norm(x);
  const auto heads = [&] {
    TensorView* all = linear(y, p.weight({kFeatures, kFeatures}, 0));
    return permute(reshape(all, {shape[0], shape[1], IntExpr(kHeads), IntExpr(kFeatures / kHeads)}), {0, 2, 1, 3});
  };
  TensorView* q = heads();
  TensorView* k = heads();
  TensorView* v = heads();
  TensorView* mixed = matmul(softmax(mul(matmul(q, transpose(k, 2, 3)), 0.177), -1), v);
  TensorView* together = flatten(permute(mixed, {0, 2, 1, 3}), 2, 3);
  x = add(x, linear(together, p.weight({kFeatures, kFeatures}, 1)));
  TensorView* wide = tanh_gelu(linear(norm(x), p.weight({4 * kFeatures, kFeatures}, 0)));
  p.fusion->addOutput(add(x, linear(wide, p.weight({kFeatures, 4 * kFeatures}, 1))));
  return p;
}

// The step of examples/train_lm_model.h for any number of rows: of the sum of the losses. tokens [rows, context], the next bytes [rows]
Program step(Communicator& comm) {
  Program p(comm);
  const FusionGuard guard(p.fusion.get());
  TensorView* tokens = p.input({-1, kContext}, DataType::Int);
  TensorView* next = p.input({-1}, DataType::Int);
  const IntExpr rows = tokens->shape()[0];
  constexpr int64_t kInputs = kContext * kEmbedding;
  TensorView* table = p.weight({kBytes, kEmbedding});
  TensorView* w1 = p.weight({kHidden, kInputs}, 0);
  TensorView* b1 = p.weight({kHidden}, 0);
  TensorView* w2 = p.weight({kBytes, kHidden}, 1);
  TensorView* b2 = p.weight({kBytes});
  const auto oneHot = [](TensorView* bytes, int dim) {
    TensorView* values = unsqueeze(iota(kBytes, 0, 1, bytes->dtype()), 1 - dim);
    return castOp(DataType::Float, eq(values, unsqueeze(bytes, dim)));
  };
  TensorView* x = reshape(embedding_fwd(tokens, table), {rows, IntExpr(kInputs)});
  TensorView* h = linear(x, w1, b1);
  TensorView* a = tanh_gelu(h);
  TensorView* logProbabilities = log_softmax(linear(a, w2, b2), 1);
  TensorView* target = oneHot(next, 1);
  p.fusion->addOutput(neg(sum(mul(logProbabilities, target), {0, 1})));
  TensorView* dlogits = sub(exp(logProbabilities), target);
  TensorView* dh = tanh_gelu_backward(matmul(dlogits, w2), h);
  TensorView* dx = reshape(matmul(dh, w1), {rows * kContext, IntExpr(kEmbedding)});
  TensorView* ofBytes = matmul(oneHot(reshape(tokens, {rows * kContext}), 0), dx);
  const std::vector<std::pair<TensorView*, TensorView*>> gradients = {{table, ofBytes},
                                                                      {w1, matmul(transpose(dh), x)},
                                                                      {b1, sum(dh, {0})},
                                                                      {w2, matmul(transpose(dlogits), a)},
                                                                      {b2, sum(dlogits, {0})}};
  for (const auto& [parameter, gradient] : gradients) {
    TensorView* updated = sub(parameter, mul(gradient, 1e-6));
    p.fusion->addOutput(updated);
    p.fusion->aliasOutputToInput(updated, parameter);
  }
  return p;
}

struct Series {
  std::string name;
  Program (*program)(Communicator& comm);
  std::vector<Argument> (*inputs)(int64_t shape);  // shape: 0 .. kShapes - 1, long and short ones in turn
};

int64_t sizeOf(int64_t shape) { return 2 + 37 * shape % kShapes; }

const std::vector<Series>& allSeries() {
  static const std::vector<Series> series = {
      {"block, sentences", block,
       [](int64_t shape) {
         return std::vector<Argument>{randomTensor({sizeOf(shape), 4, kFeatures}, DataType::Float, 1)};
       }},
      {"block, lengths", block,
       [](int64_t shape) {
         return std::vector<Argument>{randomTensor({2, sizeOf(shape), kFeatures}, DataType::Float, 1)};
       }},
      {"demo, rows", step,
       [](int64_t shape) {
         const int64_t rows = sizeOf(shape);
         return std::vector<Argument>{Tensor::zeros({rows, kContext}, DataType::Int),
                                      Tensor::zeros({rows}, DataType::Int)};
       }},
  };
  return series;
}

// Figures of rank 0.
void shapes(benchmark::State& state, const Series& series) {
  const int64_t ranks = state.range(0);
  for (auto _ : state) {
    std::vector<double> more;    // of the first call of a shape over a warm one
    std::vector<Memory> memory;  // after each 50 shapes
    int64_t programs = 0;
    runLoopback(ranks, [&](Communicator& comm) {
      Program p = series.program(comm);
      FusionExecutorCache cache(std::move(p.fusion), {.communicator = &comm, .threads = 1});
      const auto inputs = [&](int64_t shape) {
        std::vector<Argument> in = series.inputs(shape);
        in.insert(in.end(), p.weights.begin(), p.weights.end());
        return in;
      };
      for (int64_t shape = 0; shape < kShapes; shape++) {
        const std::vector<Argument> in = inputs(shape);
        const auto call = [&] {
          comm.barrier(comm.world());
          return secondsOf([&] { (void)cache.runFusionWithInputs(in); });
        };
        const int64_t before = cache.plansCompiled();
        const double first = call();
        const std::vector<double> warm = {call(), call(), call()};
        if (comm.rank() == 0) {
          if (cache.plansCompiled() == before) {
            more.push_back(first - median(warm));
          }
          programs = cache.plansCompiled();
        }
        if (shape % 50 == 49) {
          // A cache keeps 8 shapes of a class: the last ones of these.
          for (int64_t kept = 0; kept < kShapes / 2; kept++) {
            (void)cache.runFusionWithInputs(inputs(kept));
          }
          comm.barrier(comm.world());  // no rank is in a call
          if (comm.rank() == 0) {
            memory.emplace_back();
          }
          comm.barrier(comm.world());
        }
      }
    });
    state.SetIterationTime(median(more));
    const std::string name = fmt::format("{} on {} rank{}", series.name, ranks, ranks == 1 ? "" : "s");
    record({name + ": compiled programs of 100 shapes", static_cast<double>(programs), "", 4, "lower"});
    record({name + ": the first call of a new shape of a known class over a warm call", median(more) * 1e3, "ms",
            ranks == 1 ? 1 : 2, "lower"});
    record({name + ": resident memory that the second 50 shapes add", memory[1].resident - memory[0].resident, "MiB",
            std::nullopt, "lower"});
    record({name + ": heap in use that the second 50 shapes add", memory[1].heap - memory[0].heap, "MiB", kMostHeapMiB,
            "lower"});
  }
}

}  // namespace

}  // namespace meshfuse

int main(int argc, char** argv) {
  for (const meshfuse::Series& series : meshfuse::allSeries()) {
    benchmark::RegisterBenchmark(series.name.c_str(), meshfuse::shapes, series)
        ->Arg(1)
        ->Arg(2)
        ->Arg(4)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  return meshfuse::runBenchmarks(argc, argv);
}
