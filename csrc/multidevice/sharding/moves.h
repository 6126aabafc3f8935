// The moves of the planner: what one collective, or a slice, can make of a state, and what it costs.
//
// Moves act on sets of atoms at once: an all-reduce or an exchange over a group is not the sum of its parts.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "multidevice/sharding/plan_space.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

struct Move {
  Collective kind;  // Transfer: a permutation
  AtomSet group;
  SearchState after;
  bool plain = true;  // blocks of one size; of local moves and permutations, no new or moved partial sum
};

// Costs are in elements: a call costs alpha and what the busiest rank receives, at the prices of the most expensive links it crosses.
struct MovePrices {
  std::vector<double> alpha;  // by atom
  std::vector<double> beta;

  double leastCall() const;
  double call(AtomSet atoms) const;
  double least() const;
  double costliest(AtomSet atoms) const;
  bool uniform() const;
};

// Which moves there are; slices always.
struct AllowedMoves {
  PartialSums sums = PartialSums::Moved;
  std::vector<Collective> forbidden = {};  // of those that communicate; Transfer: permutations

  bool has(Collective kind) const { return std::ranges::find(forbidden, kind) == forbidden.end(); }
};

// What a slice, or an exchange with counts, costs more than nothing: so that the plainer of two equal plans is chosen.
inline constexpr double kTieCost = 1e-3;

class MoveMaker {
 public:
  // `spareSlices`: also slice over atoms that the destination leaves alone; it can pay where links differ.
  MoveMaker(PlanSpace& space, MovePrices prices, AllowedMoves allowed, bool spareSlices);

  // All moves from `state` but the closing gathers, in a fixed order.
  void moves(const SearchState& state, std::vector<Move>& out);
  // The gathers, one call or one a link, that end at the destination; empty if there are none.
  std::vector<Move> closingGathers(const SearchState& state);
  // Gathers every digit that is not where the destination has it, then slices; empty while sums are to be combined.
  std::vector<Move> gatherThenSlice(const SearchState& state);
  // Slices by every atom of the destination that owns nothing yet; nullopt where its digit is taken.
  std::optional<std::vector<Move>> slicesToGoal(SearchState state);

  double received(const SearchState& before, const Move& move);
  double cost(const SearchState& before, const Move& move);
  double cost(SearchState before, const std::vector<Move>& chain);
  const MovePrices& prices() const { return prices_; }

 private:
  void addSlices(const SearchState& state, AtomSet used, std::vector<Move>& out);
  void addExchanges(const SearchState& state, AtomSet used, std::vector<Move>& out);
  void addReductions(const SearchState& state, AtomSet combined, std::vector<Move>& out);
  void addPermutes(const SearchState& state, std::vector<Move>& out);
  void add(Collective kind, AtomSet group, const SearchState& after, bool plain, std::vector<Move>& out) const;
  void addToSum(int atom, const SearchState& after, std::vector<Move>& out) const;
  void addExchange(const SearchState& before, AtomSet group, const SearchState& after, std::vector<Move>& out) const;
  std::vector<Move> gathers(const SearchState& state, AtomSet group);

  PlanSpace& space_;
  MovePrices prices_;
  AllowedMoves allowed_;
  bool spareSlices_;
};

// By position in the refined mesh: from where each device receives.
[[nodiscard]] std::vector<int64_t> permuteSources(const std::vector<int64_t>& atomSizes, const PlanState& before,
                                                  const PlanState& after);

}  // namespace meshfuse
