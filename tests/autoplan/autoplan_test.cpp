// autoParallelize: what the user annotated, errors, files, large programs.
#include "autoplan/autoplan.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "analysis/pass_context.h"
#include "autoplan/annotate.h"
#include "autoplan/least_memory.h"
#include "autoplan/plan_graph.h"
#include "autoplan/programs.h"
#include "autoplan/search.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "multidevice/sharding/shard_state.h"
#include "ops/contraction.h"
#include "ops/factory.h"
#include "ops/indexing.h"
#include "ops/pointwise.h"
#include "ops/tensors.h"
#include "preseg_passes/specialize.h"
#include "preseg_passes/table.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

const DistributedConfig kFour{.devicesPerMachine = 4};
// Devices so slow that everything is cut.
DistributedConfig slowDevices() {
  return {.devicesPerMachine = 4,
          .within = {.bandwidth = 1e12, .latency = 0},
          .device = {.flops = 1e6, .flops16 = 1e6, .bandwidth = 1e6, .launch = 0}};
}

struct Product {
  Fusion fusion;
  TensorView* x = nullptr;
  TensorView* w = nullptr;
  TensorView* y = nullptr;

  explicit Product(const std::vector<int64_t>& sizes = {16, 16, 16}) {
    x = makeContigConcreteTensor(fusion, {sizes[0], sizes[1]});
    w = makeContigConcreteTensor(fusion, {sizes[2], sizes[1]});
    fusion.addInput(x);
    fusion.addInput(w);
    y = linear(x, w);
    fusion.addOutput(y);
  }
};

// Cuts a dim for four devices.
void cut(TensorView* tv, int64_t dim) {
  tv->setDeviceMesh(DeviceMesh::createForNumDevices(4));
  tv->outer_split(dim, 4)->axis(dim)->parallelize(ParallelType::DIDx);
}

std::string shardingOf(const TensorView* tv) { return shardState(tv).toString(); }

// Expects a UserError with these words, and the fusion as it was.
void expectRefused(Fusion& fusion, const DistributedConfig& machines, const OptimizationConfig& wishes,
                   const std::vector<std::string>& words) {
  const std::string before = fusion.toString();
  try {
    (void)autoParallelize(fusion, machines, wishes);
    ADD_FAILURE() << "no error with the words " << words[0];
  } catch (const UserError& e) {
    for (const std::string& word : words) {
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << word << "\n" << e.what();
    }
  }
  EXPECT_EQ(fusion.toString(), before);
}

TEST(AutoPlan, CutsRowsOfDataAndNotOfWeights) {
  Product p({64, 16, 16});
  const AutoPlan plan = autoParallelize(p.fusion, slowDevices());
  EXPECT_EQ(shardingOf(p.x), "S0(x) R on {x: 4}[0, 1, 2, 3]");
  EXPECT_EQ(shardingOf(p.w), "R R on {x: 4}[0, 1, 2, 3]");
  EXPECT_EQ(plan.commBytes, 0);
  EXPECT_EQ(plan.gap(), 0);
  EXPECT_EQ(plan.pins.size(), 2U);
  ASSERT_TRUE(plan.pins[0].nextBest.has_value());
  EXPECT_GE(*plan.pins[0].nextBest, plan.seconds);
  ASSERT_EQ(plan.ideas.size(), 4U);
  EXPECT_EQ(plan.ideas[0].name, "data");
  EXPECT_NEAR(plan.ideas[0].seconds.value_or(0), plan.seconds, 1e-5 * plan.seconds);
}

// Whether the op follows its operand or has strategies of its own, as an annotated one.
TEST(AutoPlan, AnOpReadsATensorOnce) {
  for (const bool isAnnotated : {false, true}) {
    Fusion fusion;
    TensorView* x = makeContigConcreteTensor(fusion, {16, 16});
    fusion.addInput(x);
    TensorView* y = mul(x, x);
    fusion.addOutput(y);
    if (isAnnotated) {
      cut(y, 0);
    }
    DistributedConfig machines = slowDevices();
    machines.device.flops = 1e12;
    EXPECT_NEAR(autoParallelize(fusion, machines).seconds, 2 * 4 * (16 * 16 / 4) / 1e6, 1e-8) << isAnnotated;
  }
}

TEST(AutoPlan, AnOpMovesATensorOnce) {
  Fusion fusion;
  TensorView* condition = makeContigConcreteTensor(fusion, {16, 16}, DataType::Bool);
  TensorView* row = makeContigConcreteTensor(fusion, {1, 16});
  fusion.addInput(condition);
  fusion.addInput(row);
  fusion.addOutput(where(condition, row, row));
  cut(condition, 0);
  cut(row, 1);
  EXPECT_EQ(autoParallelize(fusion, slowDevices()).commBytes, 4 * 16 * 3 / 4);
}

// The table's elements are counted as picked, the index as read.
TEST(AutoPlan, ATableThatIsItsOwnIndexIsReadAsAnIndex) {
  const auto secondsOf = [](bool isOwnIndex) {
    Fusion fusion;
    TensorView* table = makeContigConcreteTensor(fusion, {64, 64}, DataType::Int);
    TensorView* index = isOwnIndex ? table : makeContigConcreteTensor(fusion, {64, 64}, DataType::Int);
    fusion.addInput(table);
    if (!isOwnIndex) {
      fusion.addInput(index);
    }
    fusion.addOutput(takeAlongAxis(table, index, 1));
    return autoParallelize(fusion, slowDevices()).seconds;
  };
  EXPECT_NEAR(secondsOf(true), secondsOf(false), 1e-5 * secondsOf(false));
}

// Only the partial sums move: the bias is added after them, where it lies.
TEST(AutoPlan, ABiasIsNeededWhereTheResultIs) {
  Fusion fusion;
  TensorView* x = makeContigConcreteTensor(fusion, {16, 256});
  TensorView* w = makeContigConcreteTensor(fusion, {16, 256});
  TensorView* b = makeContigConcreteTensor(fusion, {16});
  for (TensorView* in : {x, w, b}) {
    fusion.addInput(in);
  }
  TensorView* y = linear(x, w, b);
  fusion.addOutput(y);
  cut(x, 1);
  cut(w, 1);
  cut(b, 0);
  cut(y, 1);
  DistributedConfig machines = slowDevices();
  machines.within.bandwidth = 1e3;
  EXPECT_EQ(autoParallelize(fusion, machines).commBytes, 4 * 16 * 16 * 3 / 4);
}

TEST(AutoPlan, KeepsWhatTheUserAnnotated) {
  Product p;
  const DeviceMesh mesh = DeviceMesh::create({{"a", 2}, {"b", 2}});
  p.w->setDeviceMesh(mesh);
  p.w->outer_split(1, mesh.size("b"));
  p.w->axis(1)->parallelize(mesh.axis("b"));
  const AutoPlan plan = autoParallelize(p.fusion, slowDevices());
  EXPECT_EQ(plan.mesh, mesh);
  EXPECT_EQ(shardingOf(p.w), "R S1(b) on {a: 2, b: 2}[0, 1, 2, 3]");
  const auto pin = std::ranges::find(plan.pins, p.w->id(), &PlannedTensor::id);
  ASSERT_NE(pin, plan.pins.end());
  EXPECT_TRUE(pin->byUser);
  EXPECT_FALSE(pin->nextBest.has_value());
}

// Results are sharded although no input is.
TEST(AutoPlan, AnnotatesResultsIfTheUserAnnotatedAllInputs) {
  Product p;
  const DeviceMesh mesh = DeviceMesh::createForNumDevices(4);
  p.x->setDeviceMesh(mesh);
  p.w->setDeviceMesh(mesh);
  const AutoPlan plan = autoParallelize(p.fusion, slowDevices());
  ASSERT_EQ(plan.pins.size(), 3U);
  EXPECT_FALSE(plan.pins[2].byUser);
  EXPECT_EQ(shardingOf(p.y).substr(0, 4), "S0(x");
}

// x and w are cut along the contracted dim: ranks receive the sum, of 4 bytes an element in place of 2.
TEST(AutoPlan, SumsOf16BitsArePricedAsFloatIfTheyAreCombinedSo) {
  const auto bytes = [](bool reduceInFloat) {
    Fusion fusion;
    TensorView* x = makeContigConcreteTensor(fusion, {16, 64}, DataType::BFloat16);
    TensorView* w = makeContigConcreteTensor(fusion, {16, 64}, DataType::BFloat16);
    fusion.addInput(x);
    fusion.addInput(w);
    TensorView* y = linear(x, w);
    fusion.addOutput(y);
    for (TensorView* tv : {x, w, y}) {
      tv->setDeviceMesh(DeviceMesh::createForNumDevices(4));
    }
    x->outer_split(1, 4)->axis(1)->parallelize(ParallelType::DIDx);
    w->outer_split(1, 4)->axis(1)->parallelize(ParallelType::DIDx);
    return autoParallelize(fusion, kFour, {.reduceInFloat = reduceInFloat}).commBytes;
  };
  EXPECT_EQ(bytes(false), 2 * 0.75 * 16 * 16 * 2);
  EXPECT_EQ(bytes(true), 2 * bytes(false));
}

TEST(AutoPlan, MeasuredTimesReplaceTheSpeeds) {
  const auto seconds = [](const DistributedConfig& machines) {
    Product p({64, 64, 64});
    const DeviceMesh mesh = DeviceMesh::createForNumDevices(4);
    p.y->setDeviceMesh(mesh);
    p.x->setDeviceMesh(mesh);
    p.x->outer_split(1, 4)->axis(1)->parallelize(ParallelType::DIDx);
    return autoParallelize(p.fusion, machines, {.alternatives = false}).seconds;
  };
  const TimeTable second{{{1, 1}, {1e12, 1}}};
  DistributedConfig machines = slowDevices();
  EXPECT_LT(seconds(machines), 1);
  machines.within.collectives = {{Collective::AllReduce, 4, second}};
  EXPECT_LT(seconds(machines), 1) << "rows, and an all-gather";
  for (const Collective kind : {Collective::AllGather, Collective::ReduceScatter, Collective::AllToAll}) {
    machines.within.collectives.push_back({kind, 4, second});
  }
  EXPECT_GT(seconds(machines), 1) << "some collective is needed";
  machines.within.collectives.clear();
  machines.device.products = {{{"linear", DataType::Float, 16}, second}};
  EXPECT_GT(seconds(machines), 1);
}

// Redistributions of the annotated program are planned with the costs of the links for which the plan is made.
TEST(AutoPlan, ThePlannerKnowsWhichAxesAreSlow) {
  const auto betaOf = [](const DistributedConfig& machines, const PlannerSettings& settings) {
    Product p;
    p.fusion.setPlanner(settings);
    (void)autoParallelize(p.fusion, machines, {.mesh = {{"dp", 2}, {"tp", 2}}});
    return p.fusion.planner().beta;
  };
  using Beta = std::map<std::string, double>;
  EXPECT_EQ(betaOf({.machines = 2, .devicesPerMachine = 2}, {}), (Beta{{"dp", 12}, {"tp", 1}}));
  EXPECT_EQ(betaOf({.machines = 1, .devicesPerMachine = 4}, {}), Beta{});
  EXPECT_EQ(betaOf({.machines = 2, .devicesPerMachine = 2}, {.beta = {{"tp", 3}}}), (Beta{{"tp", 3}}));
}

TEST(AutoPlan, UnevenBlocksOnlyIfAllowed) {
  Product even({6, 7, 5});
  (void)autoParallelize(even.fusion, slowDevices(), {.mesh = {{"x", 4}}});
  EXPECT_EQ(shardingOf(even.x), "R R on {x: 4}[0, 1, 2, 3]");
  Product uneven({7, 5, 3});
  (void)autoParallelize(uneven.fusion, slowDevices(), {.allowUneven = true, .mesh = {{"x", 4}}});
  EXPECT_EQ(shardingOf(uneven.x), "S0(x) R on {x: 4}[0, 1, 2, 3]");
}

TEST(AutoPlan, SymbolicSizesArePlannedForGivenValues) {
  Fusion fusion;
  TensorView* x = makeSymbolicTensor(fusion, 2);
  TensorView* w = makeContigConcreteTensor(fusion, {16, 16});
  fusion.addInput(x);
  fusion.addInput(w);
  fusion.addOutput(linear(x, w));
  expectRefused(fusion, kFour, {}, {"the symbols i0, i1", "OptimizationConfig::sizes"});
  (void)autoParallelize(fusion, slowDevices(), {.sizes = {{"i0", 64}, {"i1", 16}}});
  EXPECT_EQ(fusion.toString().find("T0 = input() : Float[i0, i1]") == std::string::npos, false);
  EXPECT_NE(fusion.toString().find("outer_split(0, 4) parallelize(0, DIDx)"), std::string::npos) << fusion.toString();
}

// The annotated program has the symbols of the user's mesh, and with another size as well it computes the same.
TEST(AutoPlan, AnAxisOfSymbolicSizeIsPlannedForAGivenSize) {
  const auto annotated = [](Product& p) {
    const DeviceMesh mesh = DeviceMesh::create({{"dp", 2}, {"tp"}});
    p.w->setDeviceMesh(mesh);
    p.w->outer_split(0, mesh.size("tp"));
    p.w->axis(0)->parallelize(mesh.axis("tp"));
    return mesh;
  };
  Product given({64, 16, 16});
  const DeviceMesh mesh = annotated(given);
  const AutoPlan plan = autoParallelize(given.fusion, slowDevices(), {.mesh = {{"tp", 2}}});
  EXPECT_EQ(plan.mesh, DeviceMesh::create({{"dp", 2}, {"tp", 2}}));
  EXPECT_EQ(given.x->getDeviceMesh(), mesh);
  EXPECT_EQ(shardingOf(given.x), "S0(dp) R on {dp: 2, tp: tp}[]");
  EXPECT_EQ(shardingOf(given.w), "S0(tp) R on {dp: 2, tp: tp}[]");
  EXPECT_EQ(shardingOf(specialize(given.fusion, {{"tp", 4}})->inputs()[0]->asTensor()),
            "S0(dp) R on {dp: 2, tp: 4}[0, 1, 2, 3, 4, 5, 6, 7]");

  Product counted({64, 16, 16});  // 4 devices, so tp is 2
  annotated(counted);
  EXPECT_EQ(autoParallelize(counted.fusion, slowDevices()).text(), plan.text());
  EXPECT_EQ(counted.fusion.toString(), given.fusion.toString());

  Product wrong;
  annotated(wrong);
  expectRefused(wrong.fusion, slowDevices(), {.mesh = {{"tp", 4}}}, {"has 8 devices", "the machines have 4"});
  expectRefused(wrong.fusion, slowDevices(), {.mesh = {{"pp", 2}}}, {"pp"});
  Product open;
  open.w->setDeviceMesh(DeviceMesh::create({{"dp"}, {"tp"}}));
  expectRefused(open.fusion, slowDevices(), {}, {"axes dp, tp of", "have no size", "give all but one"});
}

TEST(AutoPlan, TheTimeLimitLeavesThePlanSoFarWithItsGap) {
  const std::unique_ptr<Fusion> model = gpt({.layers = 2});
  DistributedConfig machines{.machines = 2, .devicesPerMachine = 2};
  const OptimizationConfig wishes{.mesh = {{"dp", 2}, {"tp", 2}}, .alternatives = false};
  const AutoPlan fastest = autoParallelize(*model->clone(), machines, wishes);
  EXPECT_FALSE(fastest.timeLimitReached);
  machines.memoryPerDevice = 0.7 * fastest.peakMemory;
  OptimizationConfig hurried = wishes;
  hurried.maxSeconds = 1e-9;
  const std::unique_ptr<Fusion> annotated = model->clone();
  const AutoPlan plan = autoParallelize(*annotated, machines, hurried);
  EXPECT_TRUE(plan.timeLimitReached);
  EXPECT_GT(plan.gap(), 0);
  EXPECT_LE(plan.bound, fastest.seconds * (1 + 1e-9));
  EXPECT_LE(plan.peakMemory, machines.memoryPerDevice);
  EXPECT_NE(plan.text().find("the time limit ended the search"), std::string::npos) << plan.text();
  EXPECT_NE(annotated->toString(), model->toString());
  EXPECT_EQ(autoParallelize(*model, machines, wishes).timeLimitReached, false);
}

TEST(AutoPlan, OptimizerStateIsWholeIfAsked) {
  const auto build = [](Fusion& f) {
    TensorView* gradient = makeContigConcreteTensor(f, {16, 16});
    TensorView* moment = makeContigConcreteTensor(f, {16, 16});
    f.addInput(gradient);
    f.addInput(moment);
    TensorView* next = add(mul(moment, 0.9), gradient);
    f.aliasOutputToInput(next, moment);
    return moment;
  };
  Fusion sharded;
  const TensorView* moment = build(sharded);
  (void)autoParallelize(sharded, slowDevices(), {.mesh = {{"x", 4}}});
  EXPECT_EQ(shardingOf(moment), "S0(x) R on {x: 4}[0, 1, 2, 3]");
  Fusion whole;
  moment = build(whole);
  (void)autoParallelize(whole, slowDevices(), {.shardOptimizerState = false, .mesh = {{"x", 4}}});
  EXPECT_EQ(shardingOf(moment), "R R on {x: 4}[0, 1, 2, 3]");
}

TEST(AutoPlan, ErrorsLeaveTheFusionAsItWas) {
  Product p;
  DistributedConfig wrong = kFour;
  wrong.within.bandwidth = -1;
  expectRefused(p.fusion, wrong, {}, {"within.bandwidth is -1", "at least 1"});
  expectRefused(p.fusion, kFour, {.mesh = {{"x", 8}}}, {"has 8 devices", "the machines have 4"});
  expectRefused(p.fusion, kFour, {.mesh = {{"x"}}}, {"mesh axis x has no size"});
  expectRefused(p.fusion, kFour, {.maxSeconds = 0}, {"maxSeconds is 0"});
  DistributedConfig small = kFour;
  small.memoryPerDevice = 100;
  expectRefused(p.fusion, small, {},
                {"no plan fits in memoryPerDevice, 100 bytes", "the least that would do is 1280, on mesh {y: 2, x: 2}",
                 "T0 512, T1 512, T2 256", "add devices"});
}

TEST(AutoPlan, IfTheTimeEndsFirstThePlanOfLeastMemoryIsTriedAndOnlyABoundRefuses) {
  const std::unique_ptr<Fusion> model = gpt({.layers = 16});
  DistributedConfig machines = kFour;
  const LeastMemory least =
      leastMemory(planGraph(*model, machines, DeviceMesh::createForShape({2, 2}), Division::Even), Deadline::max());
  const OptimizationConfig hurry{.maxSeconds = 1e-6, .mesh = {{"y", 2}, {"x", 2}}, .alternatives = false};
  machines.memoryPerDevice = 1.001 * least.peak;
  const AutoPlan plan = autoParallelize(*model->clone(), machines, hurry);
  EXPECT_TRUE(plan.timeLimitReached);
  EXPECT_LE(plan.peakMemory, machines.memoryPerDevice);
  EXPECT_GE(plan.seconds, plan.bound);

  machines.memoryPerDevice = 0.9 * least.bound;
  expectRefused(*model, machines, hurry, {"no plan fits in memoryPerDevice", "the least that would do is"});
  ASSERT_LT(least.bound, least.peak);
  machines.memoryPerDevice = (least.bound + least.peak) / 2;
  expectRefused(*model, machines, hurry,
                {"no plan that fits in memoryPerDevice", "was found: the smallest one found takes",
                 "none takes less than", "raise maxSeconds, 1e-06 s"});
}

TEST(AutoPlan, AnAnnotationThatNoStrategyHasIsAUserError) {
  Product p;
  p.x->setDeviceMesh(DeviceMesh::createForNumDevices(4));
  p.x->inner_split(0, 4);
  p.x->axis(1)->parallelize(ParallelType::DIDx);
  expectRefused(p.fusion, kFour, {},
                {"T0", "which automatic plans do not have", "blocks of whole mesh axes", "remove the annotation"});
}

TEST(AutoPlan, ASizeWithoutAValueIsAUserError) {
  Fusion fusion;
  const FusionGuard guard(&fusion);
  Val* const n = fusion.inputScalar(DataType::Int);
  fusion.addInput(n);
  fusion.addOutput(arange(n));
  expectRefused(fusion, kFour, {}, {"has no value", "OptimizationConfig::sizes"});
}

TEST(AutoPlan, TensorsOnTwoMeshesAreAUserError) {
  Product p;
  p.x->setDeviceMesh(DeviceMesh::createForNumDevices(4));
  p.w->setDeviceMesh(DeviceMesh::createForShape({2, 2}));
  expectRefused(p.fusion, kFour, {}, {"is on mesh {y: 2, x: 2}", "the plan is for {x: 4}"});
}

TEST(AutoPlan, AnOpWithoutARuleIsAUserError) {
  Fusion fusion;
  TensorView* x = makeContigConcreteTensor(fusion, {4});
  fusion.addInput(x);
  TensorView* y = fusion.addOp(ExprKind::Redistribute, {x}, DataType::Float, dimsOf(x));
  fusion.addOutput(y);
  expectRefused(fusion, kFour, {}, {"redistribute has no rule", "before passes run"});
}

TEST(AutoPlan, WritesAProgramThatParsesAndTheReport) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "autoplan_files" / "inner";
  std::filesystem::remove_all(folder.parent_path());
  Product p;
  const AutoPlan plan = autoParallelize(p.fusion, slowDevices(), {}, folder);
  const auto textOf = [&](const char* name) {
    std::ostringstream text;
    text << std::ifstream(folder / name).rdbuf();
    return text.str();
  };
  EXPECT_EQ(textOf("plan.fir"), p.fusion.toString());
  EXPECT_EQ(textOf("plan.txt"), plan.text());
  EXPECT_NE(plan.text().find("T2 = linear"), std::string::npos) << plan.text();
  // a program with a plan is one that the user annotated
  const std::unique_ptr<Fusion> again = parseFusion(textOf("plan.fir"));
  const AutoPlan same = autoParallelize(*again, slowDevices());
  EXPECT_NEAR(same.seconds, plan.seconds, 1e-9 * plan.seconds);
  EXPECT_EQ(again->toString(), p.fusion.toString());
  const std::filesystem::path file = folder.parent_path() / "file";
  std::ofstream(file) << "not a folder";
  Product other;
  const std::string before = other.fusion.toString();
  EXPECT_THROW((void)autoParallelize(other.fusion, slowDevices(), {}, file), UserError);
  EXPECT_EQ(other.fusion.toString(), before);
}

// Shardings of all tensors after propagation.
std::map<int64_t, std::string> propagated(const std::string& text) {
  const std::unique_ptr<Fusion> fusion = parseFusion(text);
  std::set<int64_t> ids;
  for (const TensorView* tv : fusion->tensors()) {
    ids.insert(tv->id());
  }
  PassContext context(*fusion);
  runPassesBeforeSizes(*fusion, context);
  std::map<int64_t, std::string> states;
  for (const TensorView* tv : fusion->tensors()) {
    if (ids.contains(tv->id())) {
      states[tv->id()] = shardState(tv).toString();
    }
  }
  return states;
}

TEST(AutoPlan, NoAnnotationOfAResultFollowsFromTheOthers) {
  int64_t annotated = 0;
  for (const int64_t vocabulary : {32, 1 << 16}) {
    const std::unique_ptr<Fusion> model = gpt({.layers = 1, .batch = 2, .tokens = 32, .vocabulary = vocabulary});
    (void)autoParallelize(*model, slowDevices(), {.alternatives = false});
    const std::string text = model->toString();
    const std::map<int64_t, std::string> planned = propagated(text);
    for (const TensorView* tv : model->tensors()) {
      if (!tv->hasDeviceMesh() || tv->isFusionInput()) {
        continue;
      }
      annotated++;
      const size_t line = text.find(fmt::format("\n  T{} = ", tv->id()));
      const size_t mesh = text.find(" mesh M0", line + 1);
      const std::string without = text.substr(0, mesh) + text.substr(text.find('\n', mesh));
      EXPECT_NE(propagated(without), planned) << "T" << tv->id() << "\n" << text;
    }
  }
  EXPECT_GT(annotated, 3);
}

// In programs of more than 1000 tensors annotations are searched in one layer of each kind. In half of the memory layers have shardings that
// no input implies.
TEST(AutoPlan, AnnotationsOfManyLayersGiveThePlanThatWasChosen) {
  const std::unique_ptr<Fusion> model = gpt({.layers = 32, .batch = 8, .tokens = 64, .features = 256, .heads = 8});
  const DeviceMesh mesh = DeviceMesh::createForShape({2, 2});
  const PlanGraph graph = planGraph(*model, kFour, mesh, Division::Even);
  ASSERT_GT(graph.nodeOf.size(), 1000U);
  const std::optional<FoundPlan> fastest = searchPlan(graph, 1e30, Deadline::max());
  ASSERT_TRUE(fastest.has_value());
  const std::optional<FoundPlan> plan = searchPlan(graph, 0.5 * fastest->peak, Deadline::max());
  ASSERT_TRUE(plan.has_value());
  const auto planned = [&](int64_t id) {
    const int64_t node = graph.nodeOf.at(id);
    return graph.nodes[node].placements[plan->choices[node]];
  };
  const std::vector<int64_t> annotated = tensorsToAnnotate(*model, graph, plan->choices, model->planner()).tensors;
  EXPECT_GT(annotated.size(), model->inputs().size());
  const std::unique_ptr<Fusion> copy = model->clone();
  for (const int64_t id : annotated) {
    annotate(copy->val(id)->asTensor(), planned(id), mesh);
  }
  PassContext context(*copy);
  runPassesBeforeSizes(*copy, context);
  for (const TensorView* tv : copy->tensors()) {
    if (graph.nodeOf.contains(tv->id())) {
      EXPECT_EQ(placementOf(shardState(tv)), planned(tv->id())) << tv->toString();
    }
  }
}

TEST(AutoPlan, EveryRunGivesTheSamePlan) {
  const GptSizes sizes{.layers = 3};
  const std::unique_ptr<Fusion> a = gpt(sizes);
  const std::unique_ptr<Fusion> b = gpt(sizes);
  EXPECT_EQ(autoParallelize(*a, slowDevices()).text(), autoParallelize(*b, slowDevices()).text());
  EXPECT_EQ(a->toString(), b->toString());
}

// Figures of the time are those of benchmarks; here only that repeated layers share their tables.
TEST(AutoPlan, FortyEightLayersInALimitedMemoryHaveASmallGap) {
  const std::unique_ptr<Fusion> model = gpt({.layers = kSanitized ? 12 : 48,
                                             .batch = 32,
                                             .tokens = 2048,
                                             .features = 4096,
                                             .heads = 32,
                                             .vocabulary = 32000,
                                             .dtype = DataType::BFloat16});
  DistributedConfig machines{.machines = 2, .devicesPerMachine = 4, .memoryPerDevice = 1e15};
  const OptimizationConfig wishes{.maxSeconds = 600, .mesh = {{"dp", 2}, {"tp", 4}}, .alternatives = false};
  const AutoPlan fastest = autoParallelize(*model->clone(), machines, wishes);
  EXPECT_EQ(fastest.commBytes, 0);  // the batch divides
  machines.memoryPerDevice = 0.5 * fastest.peakMemory;
  const AutoPlan plan = autoParallelize(*model, machines, wishes);
  EXPECT_LE(plan.peakMemory, machines.memoryPerDevice);
  EXPECT_GT(plan.commBytes, 0);
  EXPECT_LE(plan.gap(), kSanitized ? 0.01 : 0.001);
  EXPECT_LT(plan.search, kSanitized ? 300 : 30);
}

}  // namespace
}  // namespace meshfuse
