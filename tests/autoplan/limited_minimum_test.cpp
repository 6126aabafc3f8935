// Choices within a limit of weight, against the enumeration of all choices and against dynamic programming over whole weights.
#include "autoplan/limited_minimum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "autoplan/cost_graph.h"
#include "autoplan/plan_graph.h"
#include "autoplan/search.h"
#include "base/ranges.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

constexpr double kNoPlan = std::numeric_limits<double>::infinity();
constexpr int64_t kWeightedGraphs = kSanitized ? 100 : 1000;
constexpr int64_t kManySums = 100'000'000;

struct Weighted {
  CostGraph costs;
  CostGraph priced;

  double weightOf(const std::vector<int64_t>& choices) const { return priced.costOf(choices) - costs.costOf(choices); }
};

// Costs and weights are whole numbers, so that sums are exact.
Weighted randomWeights(std::mt19937& rng) {
  Weighted result;
  const int64_t variables = 2 + rng() % 5;
  const auto number = [&](int64_t most) { return static_cast<double>(rng() % (most + 1)); };
  for (int64_t v = 0; v < variables; v++) {
    std::vector<double>& costs = result.costs.costs.emplace_back();
    std::vector<double>& priced = result.priced.costs.emplace_back();
    for (int64_t c = 1 + rng() % 4; c > 0; c--) {
      costs.push_back(rng() % 12 == 0 ? kNoPlan : number(20));
      priced.push_back(costs.back() + number(10));
    }
  }
  std::vector<PairCost> weights;
  for (int64_t second = 1; second < variables; second++) {
    for (int64_t first = 0; first < second; first++) {
      if (rng() % 2 == 0) {
        continue;
      }
      const auto table = [&](int64_t most) {
        PairTable t{std::ssize(result.costs.costs[first]), std::ssize(result.costs.costs[second]), {}};
        for (int64_t k = 0; k < t.rows * t.columns; k++) {
          t.costs.push_back(number(most));
        }
        return std::make_shared<const PairTable>(std::move(t));
      };
      result.costs.pairs.push_back({first, second, table(10)});
      if (rng() % 2 == 0) {
        weights.push_back({second, first, nullptr});
        PairTable t{std::ssize(result.costs.costs[second]), std::ssize(result.costs.costs[first]), {}};
        for (int64_t k = 0; k < t.rows * t.columns; k++) {
          t.costs.push_back(number(5));
        }
        weights.back().table = std::make_shared<const PairTable>(std::move(t));
      }
    }
  }
  result.priced.pairs = result.costs.pairs;
  result.priced.pairs.insert(result.priced.pairs.end(), weights.begin(), weights.end());
  return result;
}

double leastOfAll(const Weighted& graph, double weight) {
  std::vector<int64_t> choices(graph.costs.costs.size(), 0);
  double least = kNoPlan;
  for (;;) {
    if (const double cost = graph.costs.costOf(choices); cost < least && graph.weightOf(choices) <= weight) {
      least = cost;
    }
    int64_t k = 0;
    for (; k < std::ssize(choices); k++) {
      if (++choices[k] < std::ssize(graph.costs.costs[k])) {
        break;
      }
      choices[k] = 0;
    }
    if (k == std::ssize(choices)) {
      return least;
    }
  }
}

TEST(MinimizeWithin, AgreesWithTheEnumerationOfRandomGraphs) {
  int64_t limited = 0;
  for (uint32_t seed = 0; seed < kWeightedGraphs; seed++) {
    std::mt19937 rng(seed);
    const Weighted graph = randomWeights(rng);
    const double weight = static_cast<double>(rng() % 30);
    const double least = leastOfAll(graph, weight);
    const double known = (least < kNoPlan ? least : 100.0) + static_cast<double>(rng() % 10);
    const LimitedMinimum found =
        minimizeWithin(graph.costs, graph.priced, {.weight = weight, .below = known, .most = kManySums});
    if (minimize(graph.priced).cost == kNoPlan) {
      continue;
    }
    ASSERT_NEAR(found.bound, std::min(least, known), 1e-9) << seed;
    ASSERT_EQ(found.found.empty(), least >= known) << seed;
    for (const std::vector<int64_t>& choices : found.found) {
      ASSERT_LE(graph.weightOf(choices), weight + 1e-9) << seed;
      ASSERT_LT(graph.costs.costOf(choices), known) << seed;
    }
    if (!found.found.empty()) {
      ASSERT_NEAR(graph.costs.costOf(found.found.front()), least, 1e-9) << seed;
      limited++;
    }
  }
  EXPECT_GT(limited, kWeightedGraphs / 4);
}

// A chain whose least cost within each whole weight is found by dynamic programming.
struct Chain {
  std::vector<std::vector<double>> costs;
  std::vector<std::vector<int64_t>> weights;

  Weighted graph(double price) const {
    Weighted result;
    for (const int64_t v : indices(costs)) {
      result.costs.costs.push_back(costs[v]);
      std::vector<double>& priced = result.priced.costs.emplace_back(costs[v]);
      for (const int64_t c : indices(priced)) {
        priced[c] += price * static_cast<double>(weights[v][c]);
      }
      if (v > 0) {  // choices that differ cost more
        PairTable t{std::ssize(costs[v - 1]), std::ssize(costs[v]), {}};
        for (int64_t k = 0; k < t.rows * t.columns; k++) {
          t.costs.push_back(k / t.columns == k % t.columns ? 0.0 : 0.25);
        }
        result.costs.pairs.push_back({v - 1, v, std::make_shared<const PairTable>(std::move(t))});
      }
    }
    result.priced.pairs = result.costs.pairs;
    return result;
  }

  double leastWithin(int64_t weight) const {
    std::vector<std::vector<double>> least(costs[0].size(), std::vector<double>(weight + 1, kNoPlan));
    for (const int64_t c : indices(costs[0])) {
      for (int64_t w = weights[0][c]; w <= weight; w++) {
        least[c][w] = costs[0][c];
      }
    }
    for (int64_t v = 1; v < std::ssize(costs); v++) {
      std::vector<std::vector<double>> next(costs[v].size(), std::vector<double>(weight + 1, kNoPlan));
      for (const int64_t c : indices(costs[v])) {
        for (int64_t w = weights[v][c]; w <= weight; w++) {
          for (const int64_t before : indices(least)) {
            next[c][w] =
                std::min(next[c][w], least[before][w - weights[v][c]] + costs[v][c] + (before == c ? 0 : 0.25));
          }
        }
      }
      least = std::move(next);
    }
    double all = kNoPlan;
    for (const std::vector<double>& of : least) {
      all = std::min(all, of[weight]);
    }
    return all;
  }
};

// At the price of the limit the cheapest choices weigh more or less than the limit: a part of a layer would have to change.
TEST(MinimizeWithin, CountsWholeLayers) {
  Chain chain;
  for (int64_t layer = 0; layer < 60; layer++) {
    chain.costs.push_back({10, 13, 19});
    chain.weights.push_back({9, 6, 2});
  }
  const Weighted graph = chain.graph(1);
  for (const int64_t weight : {300, 364, 365, 451, 452, 539}) {
    const double least = chain.leastWithin(weight);
    const LimitedMinimum found = minimizeWithin(
        graph.costs, graph.priced, {.weight = static_cast<double>(weight), .below = least + 5, .most = kManySums});
    EXPECT_NEAR(found.bound, least, 1e-9) << weight;
    ASSERT_FALSE(found.found.empty());
    EXPECT_NEAR(graph.costs.costOf(found.found.front()), least, 1e-9) << weight;
    const LimitedMinimum proof = minimizeWithin(
        graph.costs, graph.priced, {.weight = static_cast<double>(weight), .below = least, .most = kManySums});
    EXPECT_NEAR(proof.bound, least, 1e-9) << weight;
    EXPECT_TRUE(proof.found.empty());
  }
}

// In layers that differ, few pairs of cost and weight are equal.
TEST(MinimizeWithin, AgreesWithDynamicProgrammingOnLayersThatDiffer) {
  std::mt19937 rng(1);
  Chain chain;
  for (int64_t layer = 0; layer < 20; layer++) {
    const auto fine = [&] { return static_cast<double>(rng() % 1'000'000) / 1e6; };
    chain.costs.push_back({10 + fine(), 13 + fine(), 19 + fine()});
    chain.weights.push_back({900 + static_cast<int64_t>(rng() % 99), 600 + static_cast<int64_t>(rng() % 99), 200});
  }
  const int64_t weight = 12'500;
  const double least = chain.leastWithin(weight);
  const Weighted graph = chain.graph(0.01);
  const LimitedMinimum found =
      minimizeWithin(graph.costs, graph.priced, {.weight = 0.01 * weight, .below = 1.01 * least, .most = kManySums});
  EXPECT_NEAR(found.bound, least, 1e-9 * least);
  ASSERT_FALSE(found.found.empty());
  EXPECT_LE(graph.weightOf(found.found.front()), 0.01 * weight * (1 + 1e-9));
}

// A search prices memory, and then counts whole layers.
TEST(SearchPlan, FillsTheMemoryWithWholeLayers) {
  Chain chain;
  for (int64_t layer = 0; layer < 60; layer++) {
    chain.costs.push_back({10, 13, 19});
    chain.weights.push_back({9, 6, 2});
  }
  PlanGraph graph{.steps = 1, .costs = chain.graph(0).costs};
  for (const std::vector<int64_t>& weights : chain.weights) {
    PlanNode& node = graph.nodes.emplace_back();
    node.elements = mapped(weights, [](int64_t w) { return static_cast<double>(w); });
    node.stored = {{.id = std::ssize(graph.nodes), .firstStep = 0, .lastStep = 0, .size = 1}};
  }
  for (const int64_t memory : {364, 365, 451, 452}) {
    const std::optional<FoundPlan> found = searchPlan(graph, static_cast<double>(memory), Deadline::max());
    ASSERT_TRUE(found.has_value());
    EXPECT_LE(found->peak, memory);
    EXPECT_NEAR(found->seconds, chain.leastWithin(memory), 1e-9) << memory;
    EXPECT_NEAR(found->bound, found->seconds, 1e-9) << memory;
  }
}

TEST(MinimizeWithin, GivesUp) {
  Chain chain{.costs = {{1, 2}, {1, 2}}, .weights = {{3, 1}, {3, 1}}};
  const Weighted graph = chain.graph(1);
  EXPECT_EQ(minimizeWithin(graph.costs, graph.priced, {.weight = 4, .below = 4, .most = 0}).bound, 0);
  EXPECT_GT(minimizeWithin(graph.costs, graph.priced, {.weight = 4, .below = 4, .most = kManySums}).bound, 0);
  EXPECT_EQ(minimizeWithin(graph.costs, graph.priced, {.weight = 4, .below = 4, .most = kManySums, .bytes = 100}).bound,
            0);
  EXPECT_EQ(minimizeWithin(graph.costs, graph.priced,
                           {.weight = 4, .below = 4, .most = kManySums, .deadline = std::chrono::steady_clock::now()})
                .bound,
            0);
}

}  // namespace
}  // namespace meshfuse
