// Plans of programs whose best shardings are known: a layer against the enumeration of all plans, data parallel, tensor parallel and ZeRO-3
// where each is best, and the product of AlphaFold's triangle multiplication.
#include <gtest/gtest.h>

#include <map>

#include "autoplan/autoplan.h"
#include "autoplan/enumeration.h"
#include "autoplan/programs.h"
#include "autoplan/search.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"
#include "ops/contraction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

std::map<std::string, int64_t> strategiesOfProducts(const AutoPlan& plan) {
  std::map<std::string, int64_t> count;
  for (const PlannedOp& op : plan.ops) {
    if (op.name.ends_with("= linear")) {
      count[op.strategy]++;
    }
  }
  return count;
}

TEST(PlannedScenario, AnMlpOnTwoByTwoIsTheBestOfAllPlans) {
  const std::unique_ptr<Fusion> mlp = plannedPrograms()[0].build();
  const DistributedConfig machines{.machines = 2, .devicesPerMachine = 2};
  const PlanGraph graph = planGraph(*mlp, machines, DeviceMesh::createForShape({2, 2}), Division::Even);
  const std::optional<FoundPlan> found = searchPlan(graph, 1e30, Deadline::max());
  ASSERT_TRUE(found.has_value());
  EXPECT_NEAR(found->seconds, Enumeration(graph, 1e30).least(), 1e-12);
}

TEST(PlannedScenario, ALargeBatchIsDataParallel) {
  const std::unique_ptr<Fusion> model =
      gpt({.layers = 1, .batch = 64, .tokens = 1024, .features = 1024, .heads = 16, .vocabulary = 1024});
  const AutoPlan plan = autoParallelize(*model, {.devicesPerMachine = 4}, {.mesh = {{"x", 4}}});
  EXPECT_EQ(strategiesOfProducts(plan), (std::map<std::string, int64_t>{{"rows over x", 7}})) << plan.text();
  EXPECT_EQ(plan.commBytes, 0);
}

// Megatron: the weights are cut, the first of a pair by columns and the second by the contracted dim.
TEST(PlannedScenario, LargeWeightsAreTensorParallel) {
  const std::unique_ptr<Fusion> model =
      gpt({.layers = 1, .batch = 1, .tokens = 16, .features = 4096, .heads = 32, .vocabulary = 64});
  const AutoPlan plan = autoParallelize(*model, {.devicesPerMachine = 4}, {.mesh = {{"x", 4}}});
  const std::map<std::string, int64_t> strategies = strategiesOfProducts(plan);
  EXPECT_EQ(strategies.at("columns over x"), 4) << plan.text();
  EXPECT_EQ(strategies.at("contracted over x"), 2) << plan.text();
}

// ZeRO-3: data parallel, with weights that are held in parts and gathered for the product.
TEST(PlannedScenario, ALargeBatchInLittleMemoryHoldsWeightsInParts) {
  const std::unique_ptr<Fusion> model =
      gpt({.layers = 4, .batch = 1024, .tokens = 16, .features = 1024, .heads = 16, .vocabulary = 64});
  DistributedConfig machines{.devicesPerMachine = 4};
  const OptimizationConfig wishes{.mesh = {{"x", 4}}, .alternatives = false};
  machines.memoryPerDevice = 0.65 * autoParallelize(*model->clone(), machines, wishes).peakMemory;
  const AutoPlan plan = autoParallelize(*model, machines, wishes);
  int64_t cut = 0;
  for (const PlannedTensor& t : plan.pins) {
    const TensorView* tv = model->val(t.id)->asTensor();
    cut += tv->isFusionInput() && tv->noReductions().size() == 2 && t.sharding.find("S") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(cut, 12) << plan.text();
  EXPECT_EQ(strategiesOfProducts(plan), (std::map<std::string, int64_t>{{"rows over x", 25}})) << plan.text();
  EXPECT_GT(plan.commBytes, 0);
}

// z[i, j, c] = sum over k of a[i, k, c] b[j, k, c] on a 2 x 2 mesh, all three cut by both of their first dims.
AutoPlan triangle(int64_t rows, int64_t contracted, int64_t channels) {
  Fusion fusion;
  const FusionGuard guard(&fusion);
  const DeviceMesh mesh = DeviceMesh::createForShape({2, 2});
  TensorView* a = makeContigConcreteTensor({rows, contracted, channels});
  TensorView* b = makeContigConcreteTensor({rows, contracted, channels});
  fusion.addInput(a);
  fusion.addInput(b);
  TensorView* z = permute(matmul(permute(a, {2, 0, 1}), permute(b, {2, 1, 0})), {1, 2, 0});
  fusion.addOutput(z);
  for (TensorView* tv : {a, b, z}) {
    setShardState(tv, stateOf({0, 1}, tv->constantShape(), mesh));
  }
  return autoParallelize(fusion, {.devicesPerMachine = 4});
}

std::string strategyOfMatmul(const AutoPlan& plan) {
  const auto op = std::ranges::find_if(plan.ops, [](const PlannedOp& o) { return o.name.ends_with("= matmul"); });
  return op == plan.ops.end() ? "no matmul" : op->strategy;
}

double partOf(int64_t rows, int64_t columns, int64_t channels) {
  return static_cast<double>(rows * columns * channels * 4) / 4;
}

// As in AlphaFold: b is gathered along j, and the contributions to z over the parts of k are added where z is.
TEST(PlannedScenario, TheTriangleProductGathersOneOperandAndAddsContributions) {
  const AutoPlan plan = triangle(128, 128, 16);
  EXPECT_EQ(strategyOfMatmul(plan), "rows over y, contracted over x") << plan.text();
  EXPECT_EQ(plan.commBytes, 2 * partOf(128, 128, 16)) << plan.text();
}

// If k is short and messages are long, a is gathered along k, which receives a part. b moves to the ranks of its rows j by an all-to-all,
// which leaves a quarter of it in place, and is gathered along k.
TEST(PlannedScenario, AShortTriangleProductMovesItsOperands) {
  const AutoPlan plan = triangle(2048, 128, 64);
  EXPECT_EQ(strategyOfMatmul(plan), "rows over y, columns over x") << plan.text();
  EXPECT_EQ(plan.commBytes, (1 + 0.75 + 1) * partOf(2048, 128, 64)) << plan.text();
}

}  // namespace
}  // namespace meshfuse
