// Permutations: moves that replace the atoms of neighbouring digits by other atoms with the same product of sizes. Each rank sends its
// whole shard to another rank.
#pragma once

#include <vector>

#include "multidevice/sharding/plan_space.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

struct Reassignment {
  SearchState after;
  AtomSet moved;  // the atoms that change places
};

// Assignments of atoms to the runs of owned digits, up to a limit; assignments that put atoms on the digits of the destination come first.
// The atoms of a partial sum change too if partial sums may be moved.
[[nodiscard]] std::vector<Reassignment> reassignments(PlanSpace& space, const SearchState& state, PartialSums sums);
// By position in the refined mesh: the position of the device from which each device receives.
[[nodiscard]] std::vector<int64_t> permuteSources(const std::vector<int64_t>& atomSizes, const PlanState& before,
                                                  const PlanState& after);

}  // namespace meshfuse
