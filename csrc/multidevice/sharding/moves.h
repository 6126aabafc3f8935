// The moves of the planner: what one collective, or a slice, can make of a state, and what it costs.
#pragma once

#include <optional>
#include <vector>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

// One pair of states on atoms, with what the moves need to know of it.
struct PlanProblem {
  std::vector<int64_t> extents;
  std::vector<int64_t> atomSizes;
  PlanState from;
  PlanState to;
  std::vector<std::vector<int64_t>> strides;  // by dim: strides of digits of both ends, ascending
  std::vector<StepKind> forbidden;

  int64_t sizeOf(const std::vector<int>& atoms) const;
  bool allowed(StepKind kind) const;
};

struct Move {
  StepKind kind;
  std::vector<int> group;  // ascending
  PlanState after;
};

// All moves from `state` but the closing gather; `permuted`: a permutation was used already. In a fixed order.
[[nodiscard]] std::vector<Move> moves(const PlanProblem& problem, const PlanState& state, bool permuted);
// The gather that ends at the destination, if one gather does.
[[nodiscard]] std::optional<Move> closingGather(const PlanProblem& problem, const PlanState& state);
// Gathers every digit that is not where the destination has it, then slices; empty while sums are still to be combined.
[[nodiscard]] std::vector<Move> gatherThenSlice(const PlanProblem& problem, const PlanState& state);

// Elements that the busiest rank receives.
[[nodiscard]] int64_t received(const PlanProblem& problem, const PlanState& before, const Move& move);
// max over ranks of the elements of `after` that are not in `before`; nullopt where digits do not nest.
[[nodiscard]] std::optional<int64_t> lacking(const PlanState& before, const PlanState& after);
// What the busiest rank receives at least on any way from `state` to the destination. With n contributions to a sum and K ranks that
// want it, every element is received n - 1 times to be combined and K - 1 times to be spread: a mean over the ranks.
[[nodiscard]] double lowerBound(const PlanProblem& problem, const PlanState& state);
// By position in the refined mesh: from where each device receives.
[[nodiscard]] std::vector<int64_t> permuteSources(const PlanProblem& problem, const PlanState& before,
                                                  const PlanState& after);

}  // namespace meshfuse
