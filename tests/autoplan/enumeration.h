// The enumeration of all plans of a small program, with which found plans are compared.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "autoplan/plan_graph.h"
#include "base/ranges.h"

namespace meshfuse {

// All plans, by depth: choices whose costs so far, with the least costs of the nodes that are left, exceed the best plan are left out.
class Enumeration {
 public:
  Enumeration(const PlanGraph& graph, double memory)
      : graph_(graph), memory_(memory), pairs_(graph.nodes.size()), rest_(graph.nodes.size() + 1, 0.0) {
    for (const PairCost& pair : graph.costs.pairs) {
      pairs_[std::max(pair.first, pair.second)].push_back(&pair);
    }
    for (int64_t k = std::ssize(graph.nodes) - 1; k >= 0; k--) {
      rest_[k] = rest_[k + 1] + std::ranges::min(graph.costs.costs[k]);
    }
  }

  // Infinity if no plan fits.
  double least() {
    choices_.assign(graph_.nodes.size(), 0);
    descend(0, 0);
    return best_;
  }

 private:
  void descend(int64_t node, double cost) {
    if (cost + rest_[node] >= best_) {
      return;
    }
    if (node == std::ssize(choices_)) {
      if (std::ranges::max(graph_.memoryOf(choices_)) <= memory_) {
        best_ = cost;
      }
      return;
    }
    for (int64_t c = 0; c < std::ssize(graph_.costs.costs[node]); c++) {
      choices_[node] = c;
      double more = graph_.costs.costs[node][c];
      for (const PairCost* pair : pairs_[node]) {
        more += pair->table->at(choices_[pair->first], choices_[pair->second]);
      }
      descend(node + 1, cost + more);
    }
  }

  const PlanGraph& graph_;
  const double memory_;
  std::vector<std::vector<const PairCost*>> pairs_;  // by their later node
  std::vector<double> rest_;                         // least costs from this node on
  std::vector<int64_t> choices_;
  double best_ = std::numeric_limits<double>::infinity();
};

}  // namespace meshfuse
