// searchPlan: the fastest plan of a graph that fits in memory, with a lower bound.
//
// Without a memory limit, or if the fastest plan fits, the plan is that of minimize(). Otherwise memory at the fullest step gets a price, a
// Lagrange multiplier m >= 0: for any price, min(seconds + m * (memory - limit)) is at most the time of every plan that fits (Everett,
// 1963). The bound is concave in the price, so it is highest where the line of a plan that fits meets that of one that does not, and no
// plan is below (Kelley's cutting planes, 1960). A step that is too full under that price gets a price of its own. The best plan that fits
// then takes over parts of faster plans that do not, as far as they fit (the crossover), and single choices that are faster. Parts of equal
// worth under the prices rarely fill the memory. The rest is filled by an exact search in the core, the few nodes that can change at
// the least loss under the prices (as of knapsacks; Balas and Zemel, 1980). A gap above kSmallGap is then closed by limited_minimum.h,
// which counts whole choices. Of a small graph all nodes are the core: unless tries, tables or the time run out, no plan that fits is faster
// than its plan by more than kEnoughGap. The bound says how much faster one may be.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autoplan/plan_graph.h"
#include "autoplan/window.h"

namespace meshfuse {

inline constexpr int64_t kSmallGraph = 48;  // nodes of a graph in which an exact search may take all nodes
inline constexpr double kEnoughGap = 1e-4;  // a search ends when (seconds - bound) / seconds is at most this
inline constexpr double kSmallGap =
    5e-4;  // up to which whole choices are not counted: it may take longer than it is worth

struct FoundPlan {
  std::vector<int64_t> choices;  // by node
  double seconds = 0;
  double bound = 0;     // no plan that fits is faster
  double peak = 0;      // bytes
  bool isLate = false;  // the deadline ended the search
};

// Nothing if no plan was found that fits.
[[nodiscard]] std::optional<FoundPlan> searchPlan(const PlanGraph& graph, double memory, Deadline deadline);

}  // namespace meshfuse
