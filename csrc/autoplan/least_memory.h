// leastMemory: the plan whose fullest step takes the least memory, whatever its time.
//
// Two players take turns (fictitious play; Brown, 1951): one names the fullest step of the other's plan, the other makes the plan that takes
// the least memory on average over all steps named so far. If several steps are as full, as in layers that are alike, each is named in part.
// The average bounds the peak of every plan from below. Of a small graph, the exact search among all nodes then looks for plans with a
// smaller peak until there is none.
#pragma once

#include <cstdint>
#include <vector>

#include "autoplan/plan_graph.h"
#include "autoplan/search.h"

namespace meshfuse {

struct LeastMemory {
  std::vector<int64_t> choices;  // by node
  double peak = 0;               // bytes
  double bound = 0;              // no plan has a smaller peak
};

[[nodiscard]] LeastMemory leastMemory(const PlanGraph& graph, Deadline deadline);

}  // namespace meshfuse
