// Transformer blocks on grids of data and tensor parallel ranks, forward: what they communicate, and its bytes.
#include "programs/transformer.h"
#include "meshfuse/meshfuse.h"
#include "multidevice/scenario.h"
#include "multidevice/scenario_parts.h"

namespace meshfuse {

namespace {

std::vector<Argument> valuesOf(const std::function<void(Fusion&)>& build) {
  Fusion fusion;
  FusionGuard guard(&fusion);
  build(fusion);
  std::vector<Argument> values;
  for (const Val* in : fusion.inputs()) {
    const auto seed = static_cast<uint64_t>(values.size() + 1);
    values.emplace_back(randomTensor(in->asTensor()->constantShape(), in->dtype(), seed, -1, 1));
  }
  return values;
}

class Transformers : public ScenarioTest {
 protected:
  // On n ranks: half of them in each direction, or all in tensor parallel ones if there are two.
  static DeviceMesh grid(int64_t n) { return DeviceMesh::create({{"dp", n / tp(n)}, {"tp", tp(n)}}); }
  static int64_t tp(int64_t n) { return n % 2 == 0 ? 2 : n; }

  // The sizes are rounded so that each tensor parallel rank has an equal part.
  static TransformerSizes divisible(int64_t n, TransformerSizes sizes) {
    sizes.tokens = multipleOf(tp(n), sizes.tokens);
    sizes.heads = multipleOf(tp(n), sizes.heads);
    sizes.features = multipleOf(sizes.heads, sizes.features);
    return sizes;
  }

  static Scenario scenario(int64_t n, const TransformerSizes& sizes, Expected expected, PassSettings passes) {
    const auto build = [=](Fusion& f) { f.addOutput(transformer(f, grid(n), sizes)); };
    return {build, valuesOf(build), std::move(expected), {}, passes};
  }
  // Of an activation, on one rank.
  static int64_t activationBytes(int64_t n, const TransformerSizes& s) {
    return s.batch / (n / tp(n)) * s.tokens * s.features * dataTypeSize(s.dtype);
  }
  static std::vector<std::string> times(int64_t count, const std::vector<std::string>& steps) {
    std::vector<std::string> all;
    for (int64_t k = 0; k < count; k++) {
      all.insert(all.end(), steps.begin(), steps.end());
    }
    return all;
  }
};

TEST_F(Transformers, ABlockTakesTwoAllReduces) {
  runScenario([](int64_t n) {
    const TransformerSizes sizes = divisible(n, {.dropout = true});
    const int64_t t = tp(n);
    return scenario(n, sizes, {times(2, among(t, "all-reduce")), -1, 2 * 2 * activationBytes(n, sizes) * (t - 1) / t},
                    {});
  });
}

// The input of the first half is whole and the output is made whole: n gathers and n reduce-scatters take
// the place of n all-reduces, and receive the same.
TEST_F(Transformers, WhatIsBetweenTheHalvesRunsInPartsOfTheSequence) {
  runScenario([](int64_t n) {
    const TransformerSizes sizes = divisible(n, {.layers = 2, .dropout = true});
    const int64_t t = tp(n);
    std::vector<std::string> steps;
    for (int half = 0; half < 4 && t > 1; half++) {
      steps.push_back(among(t, "reduce-scatter")[0]);
      steps.push_back(among(t, "all-gather")[0]);
    }
    return scenario(n, sizes, {steps, -1, 4 * 2 * activationBytes(n, sizes) * (t - 1) / t}, {.callBytes = 0});
  });
}

// Written so: the input and the output of the block in parts of the sequence, and weights that are larger than what they multiply.
TEST_F(Transformers, InPartsOfTheSequenceAHalfTakesAGatherAndAReduceScatter) {
  runScenario([](int64_t n) {
    const TransformerSizes sizes = divisible(n, {.batch = 2, .features = 32, .dropout = true, .sequence = true});
    const int64_t t = tp(n);
    const auto build = [=](Fusion& f) {
      TensorView* y = transformer(f, grid(n), sizes);
      f.addOutput(y);
      y->setDeviceMesh(grid(n));
      shardBlock(y, 1, grid(n), "tp");
      shardBlock(y, 0, grid(n), "dp");
    };
    std::vector<std::string> steps;
    for (int half = 0; half < 2 && t > 1; half++) {
      steps.push_back(among(t, "all-gather")[0]);
      steps.push_back(among(t, "reduce-scatter")[0]);
    }
    return Scenario{build, valuesOf(build), {steps, -1, 2 * 2 * activationBytes(n, sizes) * (t - 1) / t}};
  });
}

// The halves of a block read one norm and are added: their sums are combined together.
TEST_F(Transformers, ParallelHalvesTakeOneAllReduce) {
  runScenario([](int64_t n) {
    const TransformerSizes sizes = divisible(n, {.layers = 2, .parallel = true});
    const int64_t t = tp(n);
    return scenario(n, sizes, {times(2, among(t, "all-reduce")), -1, 2 * 2 * activationBytes(n, sizes) * (t - 1) / t},
                    {});
  });
}

}  // namespace

}  // namespace meshfuse
