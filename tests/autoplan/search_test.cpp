// Found plans against the enumeration of all plans of small programs, without and with a memory limit.
#include "autoplan/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "autoplan/enumeration.h"
#include "autoplan/least_memory.h"
#include "autoplan/plan_graph.h"
#include "autoplan/programs.h"
#include "autoplan/window.h"
#include "base/ranges.h"
#include "ops/contraction.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"
#include "ops/tensors.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

constexpr int64_t kPrograms = kSanitized ? 50 : 1000;
constexpr double kMostPlans = 1e6;  // of a program
constexpr double kRounding = 1e-9;

const Deadline kNever = Deadline::max();

// One to three products, sums and elementwise ops of two operands, of random sizes.
std::unique_ptr<Fusion> randomProgram(std::mt19937& rng) {
  auto fusion = std::make_unique<Fusion>();
  const FusionGuard guard(fusion.get());
  const auto extent = [&] { return int64_t{4} << (rng() % 8); };
  const auto input = [&](const std::vector<int64_t>& shape) {
    TensorView* tv = makeContigConcreteTensor(*fusion, shape);
    fusion->addInput(tv);
    return tv;
  };
  const int64_t rows = extent();
  int64_t features = extent();
  TensorView* x = input({rows, features});
  const int64_t ops = 1 + static_cast<int64_t>(rng() % 3);
  for (int64_t k = 0; k < ops; k++) {
    const uint32_t kind = rng() % 4;
    if (kind == 0) {
      x = add(x, input({rows, features}));
    } else if (kind == 1 && k + 1 == ops) {
      x = sum(x, {static_cast<int>(rng() % 2)});
    } else {
      const int64_t width = extent();
      x = tanh(linear(x, input({width, features})));
      features = width;
    }
  }
  fusion->addOutput(x);
  return fusion;
}

DistributedConfig randomMachines(std::mt19937& rng, int64_t devices) {
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, static_cast<double>(rng() % 1000) / 1000);
  };
  const double flops = between(1e9, 1e13);
  return {.devicesPerMachine = devices,
          .within = {.bandwidth = between(1e8, 1e12), .latency = between(1e-7, 1e-4)},
          .device = {.flops = flops, .flops16 = 2 * flops, .bandwidth = between(1e9, 1e12), .launch = 1e-6}};
}

// The fastest plan is found, and with a memory limit one that fits, if there is any, within the gap at which a search ends. No plan is
// below the bound.
TEST(SearchPlan, AgreesWithTheEnumerationOfAllPlansOfRandomPrograms) {
  int64_t programs = 0;
  int64_t limited = 0;
  for (uint32_t seed = 0; programs < kPrograms; seed++) {
    std::mt19937 rng(seed);
    const std::unique_ptr<Fusion> program = randomProgram(rng);
    const DeviceMesh mesh = rng() % 2 == 0 ? DeviceMesh::createForShape({4}) : DeviceMesh::createForShape({2, 2});
    const PlanGraph graph = planGraph(*program, randomMachines(rng, 4), mesh, Division::Even);
    if (productOf(graph.nodes, [](const PlanNode& n) { return static_cast<double>(n.placements.size()); }) >
        kMostPlans) {
      continue;
    }
    programs++;
    const double infinite = std::numeric_limits<double>::infinity();
    const std::optional<FoundPlan> fastest = searchPlan(graph, 1e30, kNever);
    ASSERT_TRUE(fastest.has_value()) << seed;
    const double least = Enumeration(graph, infinite).least();
    ASSERT_NEAR(fastest->seconds, least, kRounding * least) << seed << "\n" << program->toString();
    ASSERT_NEAR(fastest->bound, least, kRounding * least) << seed;

    const LeastMemory smallest = leastMemory(graph, kNever);
    ASSERT_EQ(std::ranges::max(graph.memoryOf(smallest.choices)), smallest.peak) << seed;
    ASSERT_TRUE(std::isfinite(graph.costs.costOf(smallest.choices))) << seed;
    ASSERT_LE(smallest.bound, smallest.peak) << seed;
    ASSERT_GE(smallest.bound, smallest.peak * (1 - 1e-5)) << seed << "\n" << program->toString();
    ASSERT_EQ(Enumeration(graph, smallest.peak * (1 - 1e-5)).least(), infinite) << seed << "\n" << program->toString();

    const double memory = (0.4 + 0.05 * static_cast<double>(rng() % 12)) * fastest->peak;
    const double leastThatFits = Enumeration(graph, memory).least();
    const std::optional<FoundPlan> found = searchPlan(graph, memory, kNever);
    ASSERT_EQ(found.has_value(), std::isfinite(leastThatFits)) << seed << "\n" << program->toString();
    if (!found) {
      continue;
    }
    ASSERT_LE(found->peak, memory) << seed;
    ASSERT_GE(found->seconds, leastThatFits * (1 - kRounding)) << seed;
    ASSERT_LE(found->bound, leastThatFits * (1 + kRounding)) << seed;
    limited++;
    ASSERT_LE(found->seconds, leastThatFits * (1 + kEnoughGap)) << seed << "\n" << program->toString();
    ASSERT_LE(found->seconds - found->bound, kEnoughGap * found->seconds) << seed;
  }
  EXPECT_GT(limited, programs / 8);
}

// Layers are alike, and each has a fullest step of its own: eight turns do for all of them.
TEST(LeastMemory, OfManyLayersIsNearAfterTheDeadline) {
  const std::unique_ptr<Fusion> model = gpt({.layers = 16});
  const PlanGraph graph =
      planGraph(*model, {.devicesPerMachine = 4}, DeviceMesh::createForShape({2, 2}), Division::Even);
  const LeastMemory hurried = leastMemory(graph, Deadline::min());
  EXPECT_LE(hurried.peak, 1.05 * leastMemory(graph, kNever).bound);
  EXPECT_GE(hurried.peak, hurried.bound);
}

// Nodes with an edge between any two. Each has seven choices, and the first costs least.
PlanGraph clique(int64_t nodes) {
  PlanGraph graph;
  graph.steps = 1;
  PlanNode node;
  node.elements.assign(7, 1.0);
  graph.nodes.assign(nodes, node);
  graph.costs.costs.assign(nodes, {0, 1, 1, 1, 1, 1, 1});
  const auto table = std::make_shared<const PairTable>(PairTable{7, 7, std::vector<double>(49, 0.0)});
  for (int64_t first = 0; first < nodes; first++) {
    for (int64_t second = first + 1; second < nodes; second++) {
      graph.costs.pairs.push_back({first, second, table});
    }
  }
  return graph;
}

TEST(SearchWindow, EndsAtItsDeadline) {
  const PlanGraph graph = clique(6);
  Window window{.nodes = {0, 1, 2, 3, 4, 5}, .plan = std::vector<int64_t>(6, 1), .memory = 5, .most = 1'000'000};
  EXPECT_TRUE(searchWindow(graph, window).isComplete);
  window.deadline = Deadline::min();
  EXPECT_FALSE(searchWindow(graph, window).isComplete);
}

// Its tables stay small, whatever the time limit: 7^6 costs are fewer than 2^18, and 7^7 are more.
TEST(SearchWindow, GivesUpIfATableWouldBeLarge) {
  for (const int64_t nodes : {6, 7}) {
    const PlanGraph graph = clique(nodes);
    const WindowResult found = searchWindow(graph, {.nodes = mapped(indices(graph.nodes), std::identity()),
                                                    .plan = std::vector<int64_t>(nodes, 1),
                                                    .memory = 1,
                                                    .most = 1000});
    EXPECT_EQ(found.isComplete, nodes == 6);
    EXPECT_EQ(found.choices.has_value(), nodes == 6);
  }
}

}  // namespace
}  // namespace meshfuse
