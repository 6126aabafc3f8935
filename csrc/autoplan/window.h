// The exact search in a window: the fastest plan that fits in memory and differs from a given plan only in some nodes.
//
// With prices m >= 0 of memory at some steps, a plan that fits costs at most its seconds: seconds + sum m * (memory - limit). So the plans
// that fit and are faster than the given one are among those below its seconds under the prices, which visitBelow() lists. Good prices
// leave few of them. A plan is also left out as soon as the choices that it has need too much memory, whatever follows.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "autoplan/plan_graph.h"

namespace meshfuse {

using Deadline = std::chrono::steady_clock::time_point;

struct Window {
  std::vector<int64_t> nodes;  // ascending
  // A plan with finite costs. If it fits, only faster plans are searched for.
  std::vector<int64_t> plan;
  std::map<int64_t, double> prices;  // seconds a byte, by step
  double memory = 0;                 // limit in bytes
  int64_t most = 0;                  // choices of single nodes that are tried
  Deadline deadline = Deadline::max();
};

struct WindowResult {
  std::optional<std::vector<int64_t>> choices;  // of the fastest plan, if there is one
  bool isComplete = false;  // no other one is faster; false if tries or the time ran out, or a table would be too large
};

[[nodiscard]] WindowResult searchWindow(const PlanGraph& graph, const Window& window);

}  // namespace meshfuse
