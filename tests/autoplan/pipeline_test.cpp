// Pipelines: micro-batches, parts, schedules, costs of stages, whole plans. pipeline_search_test.cpp has the search.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "autoplan/autoplan.h"
#include "autoplan/micro_batches.h"
#include "autoplan/pipeline_programs.h"
#include "autoplan/program_parts.h"
#include "autoplan/programs.h"
#include "autoplan/search.h"
#include "autoplan/simulated_pipeline.h"
#include "autoplan/stage_costs.h"
#include "base/error.h"
#include "base/ranges.h"
#include "meshfuse_config.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/shape_ops.h"
#include "ops/tensors.h"

namespace meshfuse {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

PlanGraph evenGraphOf(const Fusion& fusion, const DistributedConfig& machines, const DeviceMesh& mesh) {
  return planGraph(fusion, machines, mesh, Division::Even);
}

// The program of a micro-batch is the program that is built for fewer rows.
TEST(MicroBatches, AreTheProgramOfASmallerBatch) {
  const auto model = [](int64_t batch) {
    return gpt({.layers = 2, .batch = batch, .tokens = 8, .features = 16, .dtype = DataType::BFloat16});
  };
  EXPECT_EQ(microBatches(*model(12), 3).program->toString(), model(4)->toString());
  EXPECT_EQ(microBatches(*deepForward({.batch = 24}), 6).program->toString(), deepForward({.batch = 4})->toString());
}

std::string listOf(const MicroBatches& micro) {
  const ProgramParts parts = programParts(micro);
  std::string text;
  for (const int64_t step : indices(parts.exprs)) {
    constexpr std::string_view kPasses[] = {"forward", "backward", "update"};
    const Expr& e = *parts.exprs[step];
    text += fmt::format("{} {} {} {}\n", parts.parts[step], kPasses[static_cast<size_t>(parts.passes[step])],
                        e.opName(), fmt::join(e.tensorOutput()->constantShape(), "x"));
  }
  return text;
}

// Gradients are sums, and updates follow them. Each op is in the part of the layer whose weights and results it reads.
TEST(ProgramParts, OfATrainingStep) {
  const auto program = deepTraining({.layers = 2, .batch = 6, .widths = {4, 5}, .features = 3});
  EXPECT_EQ(listOf(microBatches(*program, 3)),
            "0 forward linear 2x4\n"
            "0 forward maximum 2x4\n"
            "1 forward linear 2x3\n"
            "1 forward add 2x3\n"
            "2 forward linear 2x5\n"
            "2 forward maximum 2x5\n"
            "3 forward linear 2x3\n"
            "3 forward add 2x3\n"
            "3 forward reduce \n"
            "3 forward mul 2x3\n"
            "3 forward permute 3x2\n"
            "3 backward matmul 3x5\n"
            "3 backward matmul 2x5\n"
            "2 backward gt 2x5\n"
            "2 backward where 2x5\n"
            "2 backward permute 5x2\n"
            "2 backward matmul 5x3\n"
            "2 backward matmul 2x3\n"
            "2 backward add 2x3\n"
            "3 update mul 3x5\n"
            "3 update sub 3x5\n"
            "2 update mul 5x3\n"
            "2 update sub 5x3\n"
            "1 backward permute 3x2\n"
            "1 backward matmul 3x4\n"
            "1 backward matmul 2x4\n"
            "0 backward gt 2x4\n"
            "0 backward where 2x4\n"
            "0 backward permute 4x2\n"
            "0 backward matmul 4x3\n"
            "1 update mul 3x4\n"
            "1 update sub 3x4\n"
            "0 update mul 4x3\n"
            "0 update sub 4x3\n");
}

TEST(MicroBatches, RefusesWhatCannotRunInThem) {
  const auto program = [](const std::function<TensorView*(TensorView*)>& body) {
    auto fusion = std::make_unique<Fusion>();
    const FusionGuard guard(fusion.get());
    TensorView* x = makeContigConcreteTensor(*fusion, {6, 4});
    fusion->addInput(x);
    fusion->addOutput(body(x));
    return fusion;
  };
  const auto refusal = [](const Fusion& fusion, int64_t count) -> std::string {
    try {
      (void)microBatches(fusion, count);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  const auto centered = program([](TensorView* x) { return sub(x, broadcast(sum(x, {0}), {true, false})); });
  EXPECT_EQ(refusal(*centered, 2),
            "[autoplan] T3 = sub reads rows of the batch and a sum over all of them, which is known after the last "
            "micro-batch only; plan "
            "the program without micro-batches, or make the sum an input");
  const auto pairs = program([](TensorView* x) { return matmul(x, transpose(x)); });
  EXPECT_EQ(refusal(*pairs, 2),
            "[autoplan] T2 = matmul combines different rows of the batch, so 2 micro-batches cannot run one after the "
            "other; plan the program "
            "without micro-batches");
  const auto rows = program([](TensorView* x) { return relu(x); });
  EXPECT_EQ(refusal(*rows, 4),
            "[autoplan] 4 micro-batches do not divide the batch, dim 0 of T0, which has 6 elements; ask for a number "
            "that divides it");
  EXPECT_EQ(refusal(*rows, 1),
            "[autoplan] microBatches is 1, expected at least 2: a pipeline runs several at the same time");
  Fusion scalar;
  EXPECT_EQ(
      refusal(scalar, 2),
      "[autoplan] no input of the program has a batch: all are parameters or scalars; plan it without micro-batches");
}

TEST(PipelineSchedule, OneForwardOneBackward) {
  const auto text = [](const std::vector<PipelineTurn>& turns) {
    return joined(turns, " ",
                  [](const PipelineTurn& t) { return fmt::format("{}{}", t.isBackward ? 'B' : 'F', t.microBatch); });
  };
  const PipelineSchedule schedule{.groups = 3, .microBatches = 4, .hasBackward = true};
  EXPECT_EQ(
      mapped(turnsOf(schedule), text),
      (std::vector<std::string>{"F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}));
  EXPECT_EQ(microBatchesInFlight(schedule), (std::vector<int64_t>{3, 2, 1}));
}

// Of equal stages: a micro-batch passes the pipeline, and all others follow it one by one; v virtual stages leave 1/v of the bubbles.
TEST(PipelineSchedule, TakesTheTimeOfItsFormula) {
  for (const int64_t groups : {2, 3, 4}) {
    for (const int64_t v : {1, 2, 3}) {
      for (const int64_t rounds : {1, 2, 3}) {
        for (const bool hasBackward : {false, true}) {
          const PipelineSchedule s{groups, v, rounds * groups, hasBackward};
          const std::vector<StageSeconds> stages(s.stages(), {.forward = 1, .backward = hasBackward ? 2.0 : 0.0});
          const double t = stages[0].forward + stages[0].backward;
          const double seconds = secondsOf(s, stages);
          EXPECT_DOUBLE_EQ(seconds, t * static_cast<double>(s.microBatches * v + groups - 1))
              << groups << " " << v << " " << rounds << hasBackward;
          EXPECT_DOUBLE_EQ(seconds, simulated(s, stages));
        }
      }
    }
  }
}

// A stage of whole layers, for which receiving takes no time, takes what a program of these layers takes.
TEST(StageCosts, AreThoseOfAProgramOfTheStage) {
  const DistributedConfig machines{.devicesPerMachine = 4, .within = {.bandwidth = 1e11, .latency = 1e-6}};
  const DeepSizes sizes{.layers = 6, .batch = 2048, .widths = {512, 2048, 1024}, .features = 512};
  const MicroBatches micro = microBatches(*deepForward(sizes), 4);
  const ProgramParts parts = programParts(micro);
  ASSERT_EQ(parts.count, 7);  // the first layer is two: its operand is an input
  StageCosts costs(micro, parts, machines, evenGraphOf, Deadline::max());
  for (const int64_t devices : {1, 2, 4}) {
    const auto stage = costs.of({.begin = 2, .end = 5, .devices = devices, .memory = kUnlimited});
    double least = kUnlimited;
    const auto program =
        deepForward({.layers = 3, .batch = 512, .widths = {2048, 1024, 512}, .features = 512, .addsUp = false});
    for (const DeviceMesh& mesh : candidateMeshes(devices)) {
      DistributedConfig some = machines;
      some.devicesPerMachine = devices;
      const PlanGraph graph = evenGraphOf(*program, some, mesh);
      least = std::min(least, searchPlan(graph, kUnlimited, Deadline::max())->seconds);
    }
    EXPECT_NEAR(stage->seconds.forward, least, 1e-4 * least);  // the stage does not pay for holding what it receives
    EXPECT_EQ(stage->seconds.backward + stage->seconds.update, 0);
  }
}

// What a layer keeps for its backward pass: its operand, and the results of its first product before and after the activation.
TEST(StageCosts, CountWhatMicroBatchesInFlightKeep) {
  const MicroBatches micro = microBatches(*deepTraining({.layers = 4, .batch = 64, .widths = {24}, .features = 8}), 4);
  const ProgramParts parts = programParts(micro);
  StageCosts costs(micro, parts, {.devicesPerMachine = 4}, evenGraphOf, Deadline::max());
  const auto peak = [&](int64_t inFlight) {
    return costs.of({.begin = parts.count - 2, .end = parts.count - 1, .inFlight = inFlight, .memory = kUnlimited})
        ->peak;
  };
  constexpr double kRows = 16;
  EXPECT_EQ(peak(2) - peak(1), kRows * (8 + 2 * 24) * 4);
  EXPECT_EQ(peak(4) - peak(1), 3 * kRows * (8 + 2 * 24) * 4);
}

// A deep training step on 4 machines of 8 devices.
std::unique_ptr<Fusion> deepModel(int64_t batch) {
  return deepTraining({.layers = 8, .batch = batch, .widths = {16384}, .features = 4096, .dtype = DataType::BFloat16});
}

// Where the links between machines are slow and the batch is small, gradients cost more than bubbles; where they are fast, or the batch is
// large, bubbles cost more.
TEST(GoldenPipelines, WinOnSlowLinksBetweenMachinesAndLoseOnFastOnes) {
  std::string text;
  for (const auto& [name, between, batch] : {std::tuple{"slow links", 5e9, 8192}, {"fast links", 300e9, 65536}}) {
    const std::unique_ptr<Fusion> fusion = deepModel(batch);
    const DistributedConfig machines{
        .machines = 4, .devicesPerMachine = 8, .between = {.bandwidth = between, .latency = 20e-6}};
    const OptimizationConfig wishes{.maxSeconds = 600, .alternatives = false, .microBatches = 8};
    const std::unique_ptr<Fusion> again = deepModel(batch);
    const std::unique_ptr<Fusion> plain = deepModel(batch);
    const AutoPlan plan = autoParallelize(*fusion, machines, wishes);
    EXPECT_EQ(plan.text(), autoParallelize(*again, machines, wishes).text());
    EXPECT_EQ(plan.seconds, autoParallelize(*plain, machines, {.maxSeconds = 600, .alternatives = false}).seconds);
    EXPECT_EQ(fusion->toString(), plain->toString());
    EXPECT_EQ(plan.pipeline->seconds < plan.seconds, between < 100e9);
    const std::string report = plan.text();
    text += fmt::format("{} between machines, {} rows: {}{}\n", name, batch,
                        report.substr(0, report.find("shardings\n")), report.substr(report.find("pipeline of")));
  }
  const std::string path = MESHFUSE_SOURCE_DIR "/tests/autoplan/golden/Pipelines.txt";
  if (std::getenv("MESHFUSE_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
  }
  std::ostringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, golden.str()) << path;
}

TEST(AutoPlanPipeline, RefusesWhatNoPipelineCanDo) {
  const DistributedConfig machines{.devicesPerMachine = 8};
  const auto refusal = [&](Fusion& fusion, const OptimizationConfig& wishes,
                           const DistributedConfig& on) -> std::string {
    const std::string before = fusion.toString();
    try {
      (void)autoParallelize(fusion, on, wishes);
    } catch (const UserError& e) {
      EXPECT_EQ(fusion.toString(), before);
      return e.what();
    }
    return "";
  };
  const auto program = deepForward({.layers = 2, .batch = 8});
  EXPECT_EQ(refusal(*program, {.microBatches = 2, .stages = 4}, machines),
            "[autoplan] stages is 4, but the program has 3 parts among which a pipeline can be cut; ask for at most 3 "
            "stages");
  EXPECT_EQ(refusal(*program, {.microBatches = 2, .stages = 9}, machines),
            "[autoplan] stages is 9, the machines have 8 devices; ask for at most so many");
  EXPECT_EQ(refusal(*program, {.microBatches = 2, .stages = 1}, machines),
            "[autoplan] stages is 1, expected at least 2");
  EXPECT_EQ(refusal(*program, {.microBatches = 0}, machines),
            "[autoplan] microBatches is 0, expected at least 2: a pipeline runs several at the same time");
  EXPECT_EQ(refusal(*program, {.stages = 2}, machines),
            "[autoplan] stages is 2 without microBatches, which a pipeline needs; set microBatches, the number of "
            "parts of a batch");
  EXPECT_EQ(refusal(*program, {.microBatches = 2}, {}),
            "[autoplan] a pipeline needs at least 2 devices, the machines have 1; ask for no micro-batches");
  (void)autoParallelize(*program, machines);
  EXPECT_EQ(refusal(*program, {.microBatches = 2}, machines).substr(0, 66),
            "[autoplan] T0[8, 8] is annotated, and a pipeline has a mesh for ea");
}

}  // namespace
}  // namespace meshfuse
