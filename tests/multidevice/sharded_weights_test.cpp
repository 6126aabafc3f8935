// Weights in parts on data parallel ranks (fully sharded data parallelism), forward and backward: each layer's are gathered when it is
// computed, its gradients are scattered, and no rank ever holds more than its parts and two layers.
#include <mutex>

#include "exec/symbolic_program.h"
#include "host/program.h"
#include "interpret/bounds.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/device_of_rank.h"
#include "multidevice/scenario.h"
#include "multidevice/scenario_parts.h"

namespace meshfuse {

namespace {

// Gated feed-forward layers with residuals, whose weights are cut over dp as the rows of x are.
struct Stack {
  int64_t layers = 6;
  int64_t rows = 16;
  int64_t features = 32;
  int64_t hidden = 64;

  // The sizes are rounded so that n ranks have equal parts.
  Stack divisible(int64_t n) const {
    return {layers, multipleOf(n, rows), multipleOf(n, features), multipleOf(n, hidden)};
  }
  int64_t layerBytes() const { return 3 * features * hidden * 4; }

  struct Weights {
    TensorView* gate;
    TensorView* up;
    TensorView* down;
  };

  TensorView* cutInput(Fusion& f, const std::vector<int64_t>& shape, const DeviceMesh& mesh) const {
    TensorView* tv = input(f, shape, mesh);
    shardBlock(tv, 0, mesh, "dp");
    return tv;
  }
  Weights weights(Fusion& f, const DeviceMesh& mesh) const {
    return {cutInput(f, {hidden, features}, mesh), cutInput(f, {hidden, features}, mesh),
            cutInput(f, {features, hidden}, mesh)};
  }
  // Rows stay where they are: it is weights that travel.
  static TensorView* onRows(TensorView* tv, const DeviceMesh& mesh) {
    tv->setDeviceMesh(mesh);
    shardBlock(tv, 0, mesh, "dp");
    return tv;
  }

  void forward(Fusion& f, const DeviceMesh& mesh) const {
    TensorView* x = cutInput(f, {rows, features}, mesh);
    for (int64_t layer = 0; layer < layers; layer++) {
      const Weights w = weights(f, mesh);
      TensorView* h = mul(silu(onRows(linear(x, w.gate), mesh)), onRows(linear(x, w.up), mesh));
      x = add(x, onRows(linear(h, w.down), mesh));
    }
    f.addOutput(onRows(x, mesh));
  }

  // From what each layer read and the gradient of the last one's result: gradients of all weights and of the input. Each layer is
  // computed again.
  void backward(Fusion& f, const DeviceMesh& mesh) const {
    TensorView* dy = cutInput(f, {rows, features}, mesh);
    for (int64_t layer = 0; layer < layers; layer++) {
      TensorView* x = cutInput(f, {rows, features}, mesh);
      const Weights w = weights(f, mesh);
      TensorView* g = onRows(linear(x, w.gate), mesh);
      TensorView* u = onRows(linear(x, w.up), mesh);
      TensorView* s = sigmoid(g);
      TensorView* dh = onRows(matmul(dy, w.down), mesh);
      TensorView* du = mul(dh, mul(g, s));
      TensorView* dg = mul(mul(dh, u), mul(s, add(1.0, mul(g, sub(1.0, s)))));
      f.addOutput(onRows(matmul(transpose(dg), x), mesh));
      f.addOutput(onRows(matmul(transpose(du), x), mesh));
      f.addOutput(onRows(matmul(transpose(dy), mul(mul(g, s), u)), mesh));
      dy = add(dy, add(onRows(matmul(dg, w.gate), mesh), onRows(matmul(du, w.up), mesh)));
    }
    f.addOutput(onRows(dy, mesh));
  }

  std::vector<Argument> inputs(bool isBackward) const {
    std::vector<Argument> values;
    const auto add = [&](std::vector<int64_t> sizes) {
      const auto seed = static_cast<uint64_t>(values.size() + 1);
      values.emplace_back(randomTensor(std::move(sizes), DataType::Float, seed, -0.3, 0.3));
    };
    add({rows, features});
    for (int64_t layer = 0; layer < layers; layer++) {
      if (isBackward) {
        add({rows, features});
      }
      add({hidden, features});
      add({hidden, features});
      add({features, hidden});
    }
    return values;
  }
};

class ShardedWeights : public ScenarioTest {
 protected:
  static DeviceMesh dataParallel(int64_t n) { return DeviceMesh::create({{"dp", n}}); }

  // Of the weights of all layers, and of as many gradients, a rank receives all but its own part.
  static int64_t received(const Stack& stack, int64_t n, int times) {
    return times * stack.layers * stack.layerBytes() * (n - 1) / n;
  }

  void runForward(const Stack& sizes, int64_t gathersOfALayer, PassSettings passes) {
    const auto scenario = [&](int64_t n) {
      const Stack stack = sizes.divisible(n);
      std::vector<std::string> steps;
      for (int64_t k = 0; k < stack.layers * gathersOfALayer && n > 1; k++) {
        steps.push_back(among(n, "all-gather")[0]);
      }
      return Scenario{[=](Fusion& f) { stack.forward(f, dataParallel(n)); },
                      stack.inputs(false),
                      {steps, -1, received(stack, n, 1)},
                      {},
                      passes};
    };
    runScenario(scenario);
    runScenarioOn(1, scenario(1));
  }

  struct Peak {
    SymbolicCosts costs;
    int64_t bytes = 0;  // of rank 0's plan
  };
  // On this number of loopback ranks, with a mesh of symbolic size.
  Peak peakOf(const Stack& stack, bool isBackward, int ranks) {
    auto fusion = std::make_unique<Fusion>();
    {
      FusionGuard guard(fusion.get());
      const DeviceMesh mesh = DeviceMesh::create({{"dp"}});
      isBackward ? stack.backward(*fusion, mesh) : stack.forward(*fusion, mesh);
    }
    SymbolicProgram symbolic(std::move(fusion));
    Peak peak;
    std::mutex mutex;
    runOnRanks(ranks, [&](Communicator& comm) {
      FusionExecutorCache cache(symbolic, {.communicator = &comm});
      (void)cache.runFusionWithInputs(shardsOfRank(cache.fusion(), stack.inputs(isBackward), comm));
      if (comm.rank() == 0 || launched()) {
        const std::lock_guard lock(mutex);
        peak = {cache.costs(), cache.hostProgram()->sizes().peakBytes};
      }
    });
    return peak;
  }
};

TEST_F(ShardedWeights, ForwardGathersEachOnce) { runForward({}, 3, {.bucketBytes = 0}); }

// Small ones of a layer together, and not with those of the next.
TEST_F(ShardedWeights, SmallOnesOfALayerAreGatheredTogether) {
  runForward({.layers = 3, .features = 8, .hidden = 16}, 1, {});
}

TEST_F(ShardedWeights, BackwardGathersWeightsAndScattersGradients) {
  const auto scenario = [](int64_t n) {
    const Stack stack = Stack{.layers = 3}.divisible(n);
    std::vector<std::string> steps;
    for (int64_t layer = 0; layer < stack.layers && n > 1; layer++) {
      // gate and up again, and the gradient of down while these are at hand; then down, and the other gradients
      const std::string gather = among(n, "all-gather")[0], scatter = among(n, "reduce-scatter")[0];
      for (const std::string& step : {gather, gather, scatter, gather, scatter, scatter}) {
        steps.push_back(step);
      }
    }
    return Scenario{[=](Fusion& f) { stack.backward(f, dataParallel(n)); },
                    stack.inputs(true),
                    {steps, -1, received(stack, n, 2)},
                    {},
                    {.bucketBytes = 0}};
  };
  runScenario(scenario);
  runScenarioOn(1, scenario(1));
}

// Arguments, results and all that lies in memory at once.
TEST_F(ShardedWeights, NoRankHoldsMoreThanItsPartsAndTwoLayers) {
  // under a launcher on the ranks that it started
  const char* started = std::getenv("OMPI_COMM_WORLD_SIZE");
  const std::vector<int64_t> counts =
      !launched() ? std::vector<int64_t>{2, 4, 8} : std::vector<int64_t>{started == nullptr ? 1 : std::atoi(started)};
  if (counts[0] == 1 || 64 % counts[0] != 0) {
    GTEST_SKIP() << "the bound is that of equal parts on several ranks, and the launcher started " << counts[0];
  }
  for (const bool isBackward : {false, true}) {
    const Stack stack{.layers = 8, .rows = 8, .features = 64, .hidden = 128};
    const int64_t full = stack.layers * stack.layerBytes() * (isBackward ? 2 : 1);  // and gradients
    for (const int ranks : counts) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", isBackward ? "backward" : "forward", ranks));
      const Peak peak = peakOf(stack, isBackward, ranks);
      for (const std::string& constant : peak.costs.constants) {
        EXPECT_TRUE(ranksHaveGpus() && constant.starts_with("a workspace of ")) << constant;  // of matrix products
      }
      EXPECT_EQ(peak.costs.peakMemoryAt({{"dp", ranks}}), peak.bytes) << peak.costs.peakMemory.toString();
      EXPECT_LE(peak.bytes, full / ranks + 2 * stack.layerBytes()) << peak.costs.peakMemory.toString();
      for (const int64_t n : {2, 4, 8}) {
        EXPECT_LE(peak.costs.peakMemoryAt({{"dp", n}}), full / n + 2 * stack.layerBytes()) << "on " << n;
      }
    }
  }
}

}  // namespace

}  // namespace meshfuse
