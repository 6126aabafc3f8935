// The plans of models whose best shardings a person can judge, on 1x2, 2x4 and 4x8 devices: tests/autoplan/golden/MODEL.txt.
// MESHFUSE_UPDATE_GOLDEN=1 writes them anew.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "autoplan/autoplan.h"
#include "autoplan/programs.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "meshfuse_config.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/indexing.h"
#include "ops/normalization.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

struct Model {
  std::string name;
  std::function<std::unique_ptr<Fusion>()> build;
};
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

TensorView* input(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::BFloat16) {
  TensorView* tv = makeContigConcreteTensor(f, shape, type);
  f.addInput(tv);
  return tv;
}

TensorView* narrow(TensorView* t) { return castOp(DataType::BFloat16, t); }

// relu(x w^T) for each width in turn.
TensorView* layers(Fusion& f, TensorView* x, int64_t features, const std::vector<int64_t>& widths) {
  for (const int64_t width : widths) {
    x = narrow(relu(linear(x, input(f, {width, features}))));
    features = width;
  }
  return x;
}

// Each of 16 experts takes 4096 rows of the batch, its capacity; a row goes to two of them.
TensorView* expertsWithCapacity(Fusion& f) {
  constexpr int64_t kTokens = 32768;
  constexpr int64_t kExperts = 16;
  constexpr int64_t kCapacity = 4096;
  constexpr int64_t kFeatures = 2048;
  constexpr int64_t kHidden = 8192;
  TensorView* x = input(f, {kTokens, kFeatures});
  TensorView* rows = input(f, {kExperts * kCapacity}, DataType::Int);  // of x, by place in an expert
  TensorView* places = input(f, {2, kTokens}, DataType::Int);          // in the experts, by row of x
  TensorView* taken = reshape(index_select(x, 0, rows), {kExperts, kCapacity, kFeatures});
  TensorView* hidden = narrow(tanh_gelu(matmul(taken, input(f, {kExperts, kFeatures, kHidden}))));
  TensorView* made =
      reshape(matmul(hidden, input(f, {kExperts, kHidden, kFeatures})), {kExperts * kCapacity, kFeatures});
  return narrow(sum(embedding_fwd(places, made), {0}));
}

// A score of each user of the batch with each item.
TensorView* twoTowers(Fusion& f) {
  constexpr int64_t kBatch = 16384;
  const auto tower = [&](int64_t rows) {
    TensorView* ids = input(f, {kBatch}, DataType::Int);
    return layers(f, embedding_fwd(ids, input(f, {rows, 256})), 256, {1024, 512, 128});
  };
  TensorView* users = tower(50'000'000);
  TensorView* items = tower(2'000'000);
  return linear(users, items);
}

// A sum of weights of crossed features, and layers over embeddings.
TensorView* deepAndWide(Fusion& f) {
  constexpr int64_t kBatch = 65536;
  TensorView* crossed = input(f, {kBatch, 32}, DataType::Int);
  TensorView* wide = sum(embedding_fwd(crossed, input(f, {100'000'000, 1})), {1});
  TensorView* ids = input(f, {kBatch, 26}, DataType::Int);
  TensorView* embedded = reshape(embedding_fwd(ids, input(f, {10'000'000, 64})), {kBatch, 26 * 64});
  TensorView* deep = layers(f, embedded, 26 * 64, {1024, 512, 256});
  return sigmoid(add(linear(deep, input(f, {1, 256})), wide));
}

std::vector<Model> models() {
  const auto transformer = [](int64_t batch, int64_t tokens, int64_t vocabulary) {
    return [=] {
      return gpt({.layers = 2,
                  .batch = batch,
                  .tokens = tokens,
                  .features = 4096,
                  .heads = 32,
                  .vocabulary = vocabulary,
                  .dtype = DataType::BFloat16});
    };
  };
  const auto of = [](TensorView* (*body)(Fusion&)) {
    return [body] {
      auto fusion = std::make_unique<Fusion>();
      const FusionGuard guard(fusion.get());
      fusion->addOutput(body(*fusion));
      return fusion;
    };
  };
  return {{"Gpt", transformer(32, 2048, 32000)},
          {"LongContext", transformer(1, 32768, 32000)},
          {"LargeVocabulary", transformer(2, 256, 1 << 20)},
          {"ExpertsWithCapacity", of(expertsWithCapacity)},
          {"TwoTowers", of(twoTowers)},
          {"DeepAndWide", of(deepAndWide)}};
}

// Equal lines that follow each other as one, with their number.
std::string counted(const std::vector<std::string>& lines) {
  std::string text;
  for (auto at = lines.begin(); at != lines.end();) {
    const auto end = std::find_if(at, lines.end(), [&](const std::string& line) { return line != *at; });
    text += end - at == 1 ? fmt::format("     {}\n", *at) : fmt::format("{:>3}x {}\n", end - at, *at);
    at = end;
  }
  return text;
}

std::string typeOf(const TensorView* tv) {
  return fmt::format("{}[{}]", name(tv->dtype()), fmt::join(tv->constantShape(), ", "));
}

// The mesh and the costs, the annotated inputs and results, the strategies of products and tables, and the best plan for each single idea.
std::string textOf(const Fusion& fusion, const AutoPlan& plan) {
  std::vector<std::string> inputs;
  std::vector<std::string> results;
  for (const PlannedTensor& t : plan.pins) {
    const TensorView* tv = fusion.val(t.id)->asTensor();
    if (tv->isFusionInput()) {
      const double more = t.nextBest.value_or(plan.seconds) / plan.seconds - 1;
      inputs.push_back(fmt::format("{:<24} {:<12} next best {:+.2f}%", typeOf(tv), t.sharding, 100 * more));
    } else {
      results.push_back(fmt::format("{:<12} {:<28} {}", tv->definition()->opName(), typeOf(tv), t.sharding));
    }
  }
  std::vector<std::string> ops;
  for (const PlannedOp& op : plan.ops) {
    const TensorView* tv = fusion.val(std::stoll(op.name.substr(1)))->asTensor();
    if (isContraction(*tv->definition()) || hasIndex(*tv->definition())) {
      ops.push_back(fmt::format("{:<12} {:<28} {}", tv->definition()->opName(), typeOf(tv), op.strategy));
    }
  }
  const std::string text = plan.text();
  return text.substr(0, text.find("shardings\n")) + "inputs\n" + counted(inputs) +
         (results.empty() ? "" : "results\n" + counted(results)) + "products and tables\n" + counted(ops) +
         text.substr(text.find("best plan if inputs"));
}

class GoldenPlans : public testing::TestWithParam<Model> {};

TEST_P(GoldenPlans, AreTheseOnSmallAndLargeMachines) {
  std::string text;
  for (const auto& [machines, devices] : {std::pair{1, 2}, {2, 4}, {4, 8}}) {
    const std::unique_ptr<Fusion> fusion = GetParam().build();
    const AutoPlan plan =
        autoParallelize(*fusion, {.machines = machines, .devicesPerMachine = devices}, {.maxSeconds = 600});
    EXPECT_LE(plan.gap(), 0.001);
    text += fmt::format("{} machine{} of {} devices: {}\n", machines, machines == 1 ? "" : "s", devices,
                        textOf(*fusion, plan));
  }
  const std::string path = MESHFUSE_SOURCE_DIR "/tests/autoplan/golden/" + GetParam().name + ".txt";
  if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenPlans, testing::ValuesIn(models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace meshfuse
