// The moves of the planner: the states that one collective or a slice can reach from a state, and the cost of each.
//
// A move acts on a set of atoms at once, because the cost of a collective over a group is not the sum of the costs for its atoms.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ranges.h"
#include "multidevice/sharding/plan_space.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

struct Move {
  Collective kind;  // Transfer: a permutation
  AtomSet group;
  SearchState after;
  bool plain =
      true;  // a collective: all blocks have one size; a local move: makes no partial sum; a permutation: moves no partial sum
};

// Costs are in elements: alpha for the call, plus beta for each element that the busiest rank receives. Both are taken from the most
// expensive link that the call crosses.
struct LinkCosts {
  std::vector<double> byAtom;

  double least() const;
  double largest(AtomSet atoms) const;
  bool uniform() const;
};
struct MovePrices {
  LinkCosts alpha;
  LinkCosts beta;
};

// The moves that the planner may use; slices are always allowed.
struct AllowedMoves {
  PartialSums sums = PartialSums::Moved;
  std::vector<Collective> forbidden = {};  // moves that communicate; Transfer stands for permutations
  // Also slices over atoms that the destination does not use: this can be cheaper if links have different costs.
  bool spareSlices = false;

  bool has(Collective kind) const { return !contains(forbidden, kind); }
};

// A small cost of a slice and of an exchange with counts, so that of two plans with equal cost the simpler one is chosen.
inline constexpr double kTieCost = 1e-3;

class MoveMaker {
 public:
  MoveMaker(PlanSpace& space, MovePrices prices, AllowedMoves allowed);

  // All moves from `state` except the closing gathers, in a fixed order. The next call overwrites them.
  const std::vector<Move>& moves(const SearchState& state);
  // The gathers, in one call or one for each link cost, that reach the destination; empty if there are none.
  std::vector<Move> closingGathers(const SearchState& state);
  // Gathers every digit whose place differs from the destination, then slices; empty if partial sums still have to be combined.
  std::vector<Move> gatherThenSlice(const SearchState& state);
  // Slices by every atom of the destination that owns no digit yet; nullopt if another atom owns the digit.
  std::optional<std::vector<Move>> slicesToGoal(SearchState state);

  double received(const SearchState& before, const Move& move);
  double cost(const SearchState& before, const Move& move);
  double cost(SearchState before, const std::vector<Move>& chain);
  const MovePrices& prices() const { return prices_; }

 private:
  void addSlices(const SearchState& state, AtomSet used, AtomSet combined);
  void addExchanges(const SearchState& state, AtomSet used);
  void addReductions(const SearchState& state, AtomSet combined);
  void addPermutes(const SearchState& state);
  void add(Collective kind, AtomSet group, const SearchState& after, bool plain);
  void addToSum(int64_t atom, SearchState state);
  void addExchange(const SearchState& before, AtomSet group, const SearchState& after);
  void forEachPlace(const SearchState& state, int64_t atom, const auto& use);
  std::vector<Move> gathers(const SearchState& state, AtomSet group);

  PlanSpace& space_;
  MovePrices prices_;
  AllowedMoves allowed_;
  std::vector<Move> moves_;
};

}  // namespace meshfuse
