// Best-first search for the cheapest chain of moves between two states; no state may be larger than a bound.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "multidevice/sharding/moves.h"

namespace meshfuse {

struct SearchLimits {
  int64_t bound = 0;         // local elements of every state
  int64_t maxStates = 3000;  // limit of expanded states; then the best chain found so far is returned
  double below = std::numeric_limits<double>::infinity();  // only chains that cost less
};

struct FoundChain {
  std::vector<Move> moves;
  double cost = 0;
};

// A lower bound of the cost of any chain from `state` to the destination. Where links have several costs, elements that must cross an
// expensive one count as such.
[[nodiscard]] double leastCost(PlanSpace& space, const MovePrices& prices, const SearchState& state,
                               PlanSpace::Ranks of);

[[nodiscard]] std::optional<FoundChain> searchChain(PlanSpace& space, MoveMaker& maker, const SearchLimits& limits);

}  // namespace meshfuse
