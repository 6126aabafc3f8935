// The limit of planWithinMemory() holds for compiled programs, on every rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "autoplan/models.h"
#include "autoplan/placement.h"
#include "autoplan/programs.h"
#include "base/error.h"
#include "base/ranges.h"
#include "device/open.h"
#include "exec/abstract_inputs.h"
#include "exec/compile.h"
#include "exec/plan_within_memory.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "ir/text.h"
#include "multidevice/transport/loopback/loopback.h"
#include "ops/activation.h"
#include "ops/contraction.h"
#include "ops/tensors.h"
#include "preseg_passes/specialize.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

// Of the fullest rank of a group that exists.
double compiledPeak(const Fusion& annotated, int64_t ranks) {
  const auto shapes = mapped(annotated.inputs(), [](const Val* in) { return in->asTensor()->constantShape(); });
  std::vector<int64_t> peaks(ranks);
  runLoopback(ranks, [&](Communicator& comm) {
    const CompiledProgram compiled =
        compile(annotated, abstractInputs(annotated, shapes, comm.rank()), Agreement(comm).call(),
                openDevice(DeviceId::cpu(), {.threads = 1, .compiles = false}));
    peaks[comm.rank()] = compiled.host->sizes().peakBytes;
  });
  return static_cast<double>(std::ranges::max(peaks));
}

constexpr double kRoundedUp = 1.001;  // errors name four digits

double leastIn(const UserError& error) {
  const std::string text = error.what();
  const std::string words = "compiled, the smallest takes ";
  const size_t at = text.find(words);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + words.size()));
}

// Limits between the fastest plan and less than the smallest one.
void expectLimitsHold(const Fusion& program, int64_t ranks, Division division, const std::vector<double>& parts) {
  DistributedConfig machines{.devicesPerMachine = ranks, .memoryPerDevice = 1e18};
  const OptimizationConfig wishes{.allowUneven = division == Division::Uneven, .alternatives = false};
  const std::unique_ptr<Fusion> fastest = program.clone();
  const AutoPlan unlimited = planWithinMemory(*fastest, machines, wishes);
  EXPECT_EQ(unlimited.peakMemory, compiledPeak(*fastest, ranks));
  for (const double part : parts) {
    machines.memoryPerDevice = part * unlimited.peakMemory;
    const auto planned = [&] {
      const std::unique_ptr<Fusion> annotated = program.clone();
      const AutoPlan plan = planWithinMemory(*annotated, machines, wishes);
      EXPECT_EQ(plan.peakMemory, compiledPeak(*annotated, ranks));
      EXPECT_LE(plan.peakMemory, machines.memoryPerDevice);
      EXPECT_GE(plan.seconds, plan.bound);
    };
    try {
      planned();
    } catch (const UserError& error) {
      const double least = leastIn(error);
      EXPECT_GT(least * kRoundedUp, machines.memoryPerDevice) << error.what();
      machines.memoryPerDevice = least * kRoundedUp;
      planned();
    }
  }
}

class WithinMemory : public testing::TestWithParam<int64_t> {};

TEST_P(WithinMemory, ProgramsFit) {
  for (const ProgramOfSearch& program : plannedPrograms()) {
    for (const Division division : {Division::Even, Division::Uneven}) {
      SCOPED_TRACE(program.name + (division == Division::Even ? "" : ", uneven"));
      expectLimitsHold(*program.build(), GetParam(), division, {0.9, 0.6});
    }
  }
}

TEST_P(WithinMemory, ModelsFit) {
  for (const Model& model : plannedModels()) {
    SCOPED_TRACE(model.name);
    expectLimitsHold(*model.build(), GetParam(), Division::Even, {0.7});
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, WithinMemory,
                         testing::ValuesIn(kSanitized ? std::vector<int64_t>{2, 3}
                                                      : std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));

TEST(PlanWithinMemory, AnErrorNamesTheLargestTensorsAndLeavesTheProgram) {
  const std::unique_ptr<Fusion> fusion = gpt({});
  const std::string before = fusion->toString();
  try {
    (void)planWithinMemory(*fusion, {.devicesPerMachine = 2, .memoryPerDevice = 1000});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_GT(leastIn(error), 1000);
    EXPECT_NE(std::string(error.what()).find("its largest tensors, in bytes on a device: T"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(fusion->toString(), before);
}

TEST(PlanWithinMemory, AMeshOfOtherDevicesIsRefused) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  mesh M0 {x: 2} [2, 3]\n"
      "  T0 = input() : Float[64, 16] mesh M0 outer_split(0, 2) parallelize(0, DIDx)\n"
      "  T1 = exp(T0) : Float[64, 16]\n"
      "  output T1\n"
      "}\n");
  const std::string before = fusion->toString();
  try {
    (void)planWithinMemory(*fusion, {.devicesPerMachine = 2});
    ADD_FAILURE() << "a mesh of rank 3 is planned for 2 ranks";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("contains rank 2, but there are 2 ranks"), std::string::npos) << e.what();
  }
  EXPECT_EQ(fusion->toString(), before);
}

// Before a tensor is annotated, no mesh has the axes whose links differ in speed.
TEST(PlanWithinMemory, AProgramWithoutInputsIsPlannedOnLinksOfTwoSpeeds) {
  const char* text =
      "fusion {\n"
      "  T0 = iota(0, 1, starts=[0]) : Int[4096]\n"
      "  T1 = cast(T0) : Float[4096]\n"
      "  T2 = exp(T1) : Float[4096]\n"
      "  output T2\n"
      "}\n";
  const DistributedConfig machines{.machines = 2, .devicesPerMachine = 4};
  const OptimizationConfig wishes{.mesh = {{"x", 2}, {"y", 4}}};
  const std::unique_ptr<Fusion> fusion = parseFusion(text);
  const AutoPlan plan = planWithinMemory(*fusion, machines, wishes);
  const std::unique_ptr<Fusion> other = parseFusion(text);
  EXPECT_EQ(autoParallelize(*other, machines, wishes).seconds, plan.seconds);
  EXPECT_FALSE(plan.pins.empty());
  PlannerSettings settings = fusion->planner();
  settings.memory = other->planner().memory;  // which planWithinMemory() sets
  fusion->setPlanner(settings);
  EXPECT_EQ(other->toString(), fusion->toString());
}

TEST(PlanWithinMemory, KeepsSymbolsOfSizesAndAxes) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  mesh M0 {tp: tp} []\n"
      "  T0 = input() : Float[i0, 16]\n"
      "  T1 = input() : Float[32, 16] mesh M0 outer_split(0, tp) parallelize(0, DIDx)\n"
      "  T2 = linear(T0, T1) : Float[i0, 32, r{16}]\n"
      "  output T2\n"
      "}\n");
  const AutoPlan plan = planWithinMemory(*fusion, {.devicesPerMachine = 4}, {.sizes = {{"i0", 64}}});
  EXPECT_EQ(plan.peakMemory, (64 * 16 + 8 * 16 + 64 * 8) * 4);
  EXPECT_EQ(fusion->inputs()[0]->asTensor()->shape()[0].toString(), "i0");
  EXPECT_EQ(openAxes(*fusion), std::vector<std::string>{"tp"});
}

// The order of steps keeps the smaller one of the program's limit and that of the machines.
TEST(PlanWithinMemory, KeepsASmallerLimitOfTheProgram) {
  for (const double memory : {1e10, 1e12}) {
    const std::unique_ptr<Fusion> fusion = gpt({});
    PlannerSettings settings = fusion->planner();
    settings.memory = 100'000'000'000;
    fusion->setPlanner(settings);
    (void)planWithinMemory(*fusion, {.devicesPerMachine = 2, .memoryPerDevice = memory}, {.alternatives = false});
    EXPECT_EQ(fusion->planner().memory, std::min<int64_t>(settings.memory.value(), static_cast<int64_t>(memory)));
  }
}

// However early the time ends the searches: the files, the annotations and the memory are those of one plan.
TEST(PlanWithinMemory, OnePlanIsReportedAndApplied) {
  const double fastest = planWithinMemory(*gpt({})->clone(), {.devicesPerMachine = 4}).peakMemory;
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "one_plan";
  for (const double seconds : {1e-4, 3e-3, 0.01, 0.03, 0.1, 10.0}) {
    SCOPED_TRACE(seconds);
    const std::unique_ptr<Fusion> fusion = gpt({});
    const AutoPlan plan = planWithinMemory(*fusion, {.devicesPerMachine = 4, .memoryPerDevice = 0.7 * fastest},
                                           {.maxSeconds = seconds}, folder);
    EXPECT_EQ(plan.peakMemory, compiledPeak(*fusion, 4));
    std::stringstream written;
    written << std::ifstream(folder / "plan.fir").rdbuf();
    EXPECT_EQ(parseFusion(written.str())->toString(), fusion->toString());
  }
}

TEST(PlanWithinMemory, TheLastPlanIsThatOfLeastMemory) {
  for (const Model& model : plannedModels()) {
    DistributedConfig machines{.devicesPerMachine = 4, .memoryPerDevice = 1000};
    try {
      (void)planWithinMemory(*model.build(), machines);
      FAIL() << model.name;
    } catch (const UserError& error) {
      machines.memoryPerDevice = leastIn(error) * kRoundedUp;
    }
    for (const double seconds : {1e-6, 0.1, 10.0}) {
      SCOPED_TRACE(fmt::format("{}, {} seconds", model.name, seconds));
      const std::unique_ptr<Fusion> fusion = model.build();
      const AutoPlan plan = planWithinMemory(*fusion, machines, {.maxSeconds = seconds, .alternatives = false});
      EXPECT_LE(plan.peakMemory, machines.memoryPerDevice);
    }
  }
}

// Gathers that begin early take memory: under a limit they do so as far as it allows, and the plan is the one that the model chooses.
TEST(PlanWithinMemory, EarlyCollectivesDoNotCostAPlan) {
  Fusion program;
  const FusionGuard guard(&program);
  const auto input = [&](std::vector<int64_t> shape) {
    TensorView* tv = makeContigConcreteTensor(std::move(shape));
    program.addInput(tv);
    return tv;
  };
  TensorView* x = input({4096, 1024});
  for (int64_t layer = 0; layer < 8; layer++) {
    x = relu(linear(x, input({1024, 1024})));
  }
  program.addOutput(x);
  const OptimizationConfig wishes{.alternatives = false};
  DistributedConfig machines{.devicesPerMachine = 4, .memoryPerDevice = 1e18};
  const double fastest = planWithinMemory(*program.clone(), machines, wishes).peakMemory;
  for (const double part : {0.9, 0.8, 0.7, 0.6}) {
    machines.memoryPerDevice = part * fastest;
    const std::unique_ptr<Fusion> annotated = program.clone();
    const AutoPlan plan = planWithinMemory(*annotated, machines, wishes);
    EXPECT_EQ(plan.seconds, autoParallelize(*program.clone(), machines, wishes).seconds) << part;
    EXPECT_EQ(annotated->planner().memory, static_cast<int64_t>(machines.memoryPerDevice));
    EXPECT_LE(compiledPeak(*annotated, 4), machines.memoryPerDevice);
  }
}

// Of 10 rows, rank 3 holds 3 and rank 0 holds 1.
TEST(PlanWithinMemory, TheFullestRankIsAnyRank) {
  const std::unique_ptr<Fusion> fusion = parseFusion(
      "fusion {\n"
      "  mesh M0 {x: 4} [3, 2, 1, 0]\n"
      "  T0 = input() : Float[10, 16] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  T1 = exp(T0) : Float[10, 16] mesh M0 outer_split(0, 4) parallelize(0, DIDx)\n"
      "  output T1\n"
      "}\n");
  const DistributedConfig machines{.devicesPerMachine = 4, .memoryPerDevice = 300};
  const OptimizationConfig wishes{.allowUneven = true};
  EXPECT_THROW((void)planWithinMemory(*fusion, machines, wishes), UserError);
  const AutoPlan plan = planWithinMemory(*fusion, {.devicesPerMachine = 4}, wishes);
  EXPECT_EQ(plan.peakMemory, compiledPeak(*fusion, 4));
  EXPECT_EQ(plan.peakMemory, 2 * 3 * 16 * 4);
}

}  // namespace
}  // namespace meshfuse
