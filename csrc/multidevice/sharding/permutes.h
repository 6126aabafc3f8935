// Permutations: the atoms that own neighbouring digits may be exchanged for others of the same product, and whole shards move.
#pragma once

#include <vector>

#include "multidevice/sharding/plan_space.h"

namespace meshfuse {

struct Reassignment {
  SearchState after;
  AtomSet moved;  // the atoms that change places
};

// Assignments of atoms to the runs of owned digits, those that bring atoms home first, up to a limit. `withPartial`: the
// contributions to a sum may change hands as well.
[[nodiscard]] std::vector<Reassignment> reassignments(PlanSpace& space, const SearchState& state, bool withPartial);

}  // namespace meshfuse
