// minimizeWithin(): the cheapest choices whose weight is within a limit, with a bound that counts whole choices: where one layer more does not
// fit, the bound of a price per byte assumes a part of a layer.
//
// Costs are given twice, without and with priced weight. With a price for weight, let the priced cost of a plan be its cost plus its weight
// times the price. A plan within the limit that costs less than a known plan has a priced cost below the cost of the known plan plus the
// price of the whole limit. Exact elimination of the priced costs says what each entry of a table costs at least in whole plans, so few
// entries are left: those of plans that are nearly as good under the prices. A second elimination keeps for each of them not one least
// cost, but all pairs (cost, weight) that no other pair beats in both (Pareto sets, as in knapsacks; Nemhauser and Ullmann, 1969). Equal
// layers have equal pairs, so the sets stay small.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "autoplan/cost_graph.h"

namespace meshfuse {

struct WeightLimit {
  double weight = 0;  // the price of the whole limit, in the unit of costs
  double below = 0;   // the cost of known choices within the limit
  int64_t most = 0;   // of entries, sums and pairs that may be made
  // The most bytes that the entries and the kept pairs may take. The pairs of one entry before most of them are dropped, and copies of
  // arrays that grow, come on top.
  int64_t bytes = int64_t{128} << 20;
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

struct LimitedMinimum {
  double bound =
      0;  // no choices within the limit cost less, except for rounding: 1e-13 of `below` at each sum; at most `below`
  // At most 16, within the limit (except for rounding) and cheaper than `below`, the cheapest first, which costs `bound` except for rounding.
  std::vector<std::vector<int64_t>> found;
};

// `priced`: `costs` and a weight, which is not negative, of each choice and of each pair; the pairs of `costs` come first. The bound is 0 and
// nothing is found if a table would be too large, or if the limits end the search.
[[nodiscard]] LimitedMinimum minimizeWithin(const CostGraph& costs, const CostGraph& priced, const WeightLimit& limit);

}  // namespace meshfuse
