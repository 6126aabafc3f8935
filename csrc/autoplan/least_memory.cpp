#include "autoplan/least_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>

#include "autoplan/window.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

constexpr int64_t kTurns = 40;
constexpr int64_t kLeastTurns = 8;  // after the deadline too, so that there is some plan
constexpr int64_t kSearches = 40;
constexpr int64_t kTries = 200'000;  // choices of single nodes in a search
constexpr double kSmaller = 1e-6;    // part of the peak by which another one must be smaller

// The same choices, all allowed ones without cost.
PlanGraph withoutTimes(const PlanGraph& graph) {
  const auto clear = [](std::vector<double>& costs) {
    std::ranges::replace_if(
        costs, [](double cost) { return std::isfinite(cost); }, 0.0);
  };
  PlanGraph result = graph;
  std::ranges::for_each(result.costs.costs, clear);
  std::map<const PairTable*, std::shared_ptr<const PairTable>> cleared;
  for (PairCost& pair : result.costs.pairs) {
    std::shared_ptr<const PairTable>& table = cleared[pair.table.get()];
    if (table == nullptr) {
      PairTable copy = *pair.table;
      clear(copy.costs);
      table = std::make_shared<const PairTable>(std::move(copy));
    }
    pair.table = table;
  }
  return result;
}

}  // namespace

LeastMemory leastMemory(const PlanGraph& graph, Deadline deadline) {
  const auto isLate = [&] { return std::chrono::steady_clock::now() > deadline; };
  LeastMemory least{.peak = std::numeric_limits<double>::infinity()};
  const auto consider = [&](const std::vector<int64_t>& choices) {
    const std::vector<double> memory = graph.memoryOf(choices);
    const auto fullest = std::ranges::max_element(memory);
    if (*fullest < least.peak) {
      least.choices = choices;
      least.peak = *fullest;
    }
    return filtered(indices(memory), [&](int64_t step) { return memory[step] >= *fullest * (1 - kSmaller); });
  };
  const auto isDone = [&] { return least.bound >= least.peak * (1 - kSmaller); };
  const PlanGraph untimed = withoutTimes(graph);
  std::map<int64_t, double> named;  // by step: the sum of its parts of all turns
  double turns = 0;
  const auto name = [&](const std::vector<int64_t>& steps) {
    for (const int64_t step : steps) {
      named[step] += 1 / static_cast<double>(steps.size());
    }
    turns++;
  };
  name(consider(minimize(graph.costs).choices));
  while (turns <= kTurns && !isDone() && (turns <= kLeastTurns || !isLate())) {
    const Minimum found = minimize(withMemory(untimed, named));
    least.bound = std::max(least.bound, found.bound / turns);
    name(consider(found.choices));
  }
  std::vector<int64_t> nodes(graph.nodes.size());
  std::iota(nodes.begin(), nodes.end(), int64_t{0});
  for (int64_t k = 0; k < kSearches && std::ssize(nodes) <= kSmallGraph && !isDone() && !isLate(); k++) {
    const double smaller = least.peak * (1 - kSmaller);
    const WindowResult found = searchWindow(
        untimed, {.nodes = nodes, .plan = least.choices, .memory = smaller, .most = kTries, .deadline = deadline});
    if (!found.choices) {
      least.bound = found.isComplete ? smaller : least.bound;
      break;
    }
    consider(*found.choices);
  }
  return least;
}

}  // namespace meshfuse
