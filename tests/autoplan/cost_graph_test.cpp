// Variable elimination against the enumeration of all assignments.
#include "autoplan/cost_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "base/ranges.h"
#include "sanitized.h"

namespace meshfuse {
namespace {

constexpr int64_t kGraphs = kSanitized ? 100 : 1000;
constexpr int64_t kMostAssignments = 1'000'000;

// Small integers as costs: sums are exact, and ties are common.
CostGraph randomGraph(std::mt19937& rng) {
  CostGraph graph;
  const int64_t most = rng() % 8 == 0 ? kMostAssignments : 3000;
  int64_t assignments = 1;
  const auto cost = [&] { return static_cast<double>(rng() % 10); };
  while (graph.costs.size() < 12) {
    const auto choices = static_cast<int64_t>(1 + rng() % 5);
    if (assignments * choices > most) {
      break;
    }
    assignments *= choices;
    std::vector<double>& costs = graph.costs.emplace_back(choices);
    std::ranges::generate(costs, cost);
  }
  const auto count = std::ssize(graph.costs);
  const int64_t pairs = count < 2 ? 0 : static_cast<int64_t>(rng() % (2 * count));
  for (int64_t k = 0; k < pairs; k++) {
    const auto a = static_cast<int64_t>(rng() % count);
    const auto b = static_cast<int64_t>((a + 1 + rng() % (count - 1)) % count);
    PairTable table{std::ssize(graph.costs[a]), std::ssize(graph.costs[b]), {}};
    table.costs.resize(table.rows * table.columns);
    std::ranges::generate(table.costs, cost);
    graph.pairs.push_back({a, b, std::make_shared<const PairTable>(std::move(table))});
  }
  return graph;
}

void forEachChoices(const CostGraph& graph, const std::function<void(const std::vector<int64_t>&)>& visit) {
  std::vector<int64_t> choices(graph.costs.size(), 0);
  while (true) {
    visit(choices);
    int64_t k = std::ssize(choices) - 1;
    for (; k >= 0 && ++choices[k] == std::ssize(graph.costs[k]); k--) {
      choices[k] = 0;
    }
    if (k < 0) {
      return;
    }
  }
}

double leastByEnumeration(const CostGraph& graph) {
  double least = std::numeric_limits<double>::infinity();
  forEachChoices(graph, [&](const std::vector<int64_t>& choices) { least = std::min(least, graph.costOf(choices)); });
  return least;
}

TEST(CostGraph, EliminationFindsTheMinimumOfAllAssignments) {
  for (int64_t seed = 0; seed < kGraphs; seed++) {
    std::mt19937 rng(static_cast<uint32_t>(seed));
    const CostGraph graph = randomGraph(rng);
    const Minimum found = minimize(graph);
    ASSERT_TRUE(found.isExact) << seed;
    ASSERT_EQ(found.cost, leastByEnumeration(graph)) << seed;
    ASSERT_EQ(found.bound, found.cost) << seed;
    ASSERT_EQ(graph.costOf(found.choices), found.cost) << seed;
  }
}

TEST(CostGraph, SmallTablesGiveALowerBoundAndASolution) {
  int64_t approximated = 0;
  for (int64_t seed = 0; seed < kGraphs / 4; seed++) {
    std::mt19937 rng(static_cast<uint32_t>(seed));
    const CostGraph graph = randomGraph(rng);
    const Minimum found = minimize(graph, {.entries = 16});
    const double least = leastByEnumeration(graph);
    ASSERT_LE(found.bound, least) << seed;
    ASSERT_GE(found.cost, least) << seed;
    approximated += found.isExact ? 0 : 1;
  }
  EXPECT_GT(approximated, kGraphs / 50);
}

// Counts the choices that it is shown, and refuses those of some variables.
class Counting : public ChoiceVisitor {
 public:
  Counting(const CostGraph& graph, double below) : graph_(graph), below_(below) {}

  bool enter(int64_t variable, int64_t choice) override {
    entered_.emplace_back(variable, choice);
    return variable % 3 != 0 || choice % 2 == 0;
  }
  void leave(int64_t variable) override {
    ASSERT_EQ(entered_.back().first, variable);
    entered_.pop_back();
  }
  double visit(const std::vector<int64_t>& choices) override {
    EXPECT_LT(graph_.costOf(choices), below_);
    EXPECT_EQ(std::ssize(entered_), std::ssize(choices));
    for (const auto& [variable, choice] : entered_) {
      EXPECT_EQ(choices[variable], choice);
    }
    visited.insert(choices);
    return below_;
  }

  std::set<std::vector<int64_t>> visited;

 private:
  const CostGraph& graph_;
  const double below_;
  std::vector<std::pair<int64_t, int64_t>> entered_;
};

TEST(CostGraph, AllChoicesBelowACostAreVisited) {
  int64_t visited = 0;
  for (int64_t seed = 0; seed < kGraphs / 4; seed++) {
    std::mt19937 rng(static_cast<uint32_t>(seed));
    const CostGraph graph = randomGraph(rng);
    const double below = minimize(graph).cost + static_cast<double>(rng() % 12);
    int64_t expected = 0;
    forEachChoices(graph, [&](const std::vector<int64_t>& choices) {
      const bool isAccepted =
          std::ranges::all_of(indices(choices), [&](int64_t v) { return v % 3 != 0 || choices[v] % 2 == 0; });
      expected += isAccepted && graph.costOf(choices) < below ? 1 : 0;
    });
    Counting counting(graph, below);
    ASSERT_TRUE(visitBelow(graph, below, 100 * kMostAssignments, counting)) << seed;
    ASSERT_EQ(std::ssize(counting.visited), expected) << seed;
    visited += expected;
    if (expected > 1) {
      Counting few(graph, below);
      ASSERT_FALSE(visitBelow(graph, below, std::ssize(graph.costs), few)) << seed;
    }
  }
  EXPECT_GT(visited, kGraphs);
}

TEST(CostGraph, NothingIsVisitedIfATableWouldBeTooLarge) {
  const auto table = std::make_shared<const PairTable>(PairTable{3, 3, std::vector<double>(9, 1.0)});
  const CostGraph graph{.costs = {{0, 1, 2}, {0, 1, 2}}, .pairs = {{0, 1, table}}};
  Counting all(graph, 100);
  EXPECT_TRUE(visitBelow(graph, 100, kMostAssignments, all, {.entries = 9}));
  EXPECT_EQ(std::ssize(all.visited), 6) << "odd choices of variable 0 are refused";
  Counting none(graph, 100);
  EXPECT_FALSE(visitBelow(graph, 100, kMostAssignments, none, {.entries = 8}));
  EXPECT_TRUE(none.visited.empty());
}

TEST(CostGraph, ForbiddenChoicesAreNotTaken) {
  const double never = std::numeric_limits<double>::infinity();
  CostGraph graph{.costs = {{0, 1}, {0, never}},
                  .pairs = {{0, 1, std::make_shared<const PairTable>(PairTable{2, 2, {never, 0, 5, 0}})}}};
  const Minimum found = minimize(graph);
  EXPECT_EQ(found.choices, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(found.cost, 6);
}

}  // namespace
}  // namespace meshfuse
