// The redistribution planner: a chain of collectives that turns one sharding of a tensor into another.
//
//   mesh {x: 4}, T[8, 8]   S0(x) -> S1(x)        all-to-all over x, 12 elements received per rank
//                          S0(x) -> R            all-gather over x
//                          P(x) -> S0(x)         reduce-scatter over x
//                          R -> S1(x)            slice, nothing received
//
// Best-first search over states; a move takes or frees digits of a set of atoms at once. No intermediate state is larger than the largest
// of source, destination and PlanOptions::bound, unless there is no other way than to gather the tensor (see `note`). The cost of the chain
// is compared with that of a direct transfer (tile: the part of a rank). A direct transfer is always used if there is no chain, or between
// two meshes. The plan depends on its arguments only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/planner_settings.h"
#include "multidevice/mesh/comm_step.h"
#include "multidevice/mesh/device_mesh.h"
#include "multidevice/mesh/plan_state.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// Moved: a plan may also create, permute and transfer partial sums. Host programs need Combined: sums are combined first.
enum class PartialSums : uint8_t { Combined, Moved };

struct PlanOptions {
  double alpha = 1;      // cost of a call, in elements
  double alphaPeer = 1;  // cost of one message of a direct transfer
  std::map<std::string, double> alphas =
      {};  // cost of a call, or a message, by name of an axis; empty: alpha and alphaPeer
  std::map<std::string, double> beta = {};  // cost of an element by name of an axis; 1 where absent
  double betaBetween = PlannerSettings().betaBetween;
  // The largest allowed number of local elements of an intermediate state. No effect if one of the two ends has more.
  std::optional<int64_t> bound;
  PartialSums sums = PartialSums::Combined;
  // Moves that are used only if there is no other way.
  std::vector<Collective> forbid;
  bool permutes = true;
  bool transfers = true;  // of tiles, directly
  DirectChoice direct = DirectChoice::Priced;
  int64_t maxStates = 3000;

  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

struct RedistributionPlan {
  std::vector<CommStep> steps;
  double cost = 0;
  int64_t elements = 0;  // received by the busiest rank, summed over steps
  // Elements that a rank may hold in a state: the largest of PlanOptions::bound, source and destination. If `note` is not empty, the plan may
  // exceed that limit; `bound` is then at least peakState.
  int64_t bound = 0;
  int64_t peakState = 0;     // local elements of the largest state
  double leastElements = 0;  // lower bound of `elements` for any plan; on one mesh only
  std::string note;          // the reason if the plan is not of the best kind, else empty

  // The communication steps, as ["all_to_all(x)", "all_gather(y)"].
  std::vector<std::string> communications() const;
};

// Both states have constant sizes and the same extents. With PartialSums::Combined the destination is not partial (InternalError
// otherwise). Without direct transfers, the meshes must have the same devices (UserError otherwise), and if there is no chain, the
// tensor is gathered and sliced: `note` says so.
[[nodiscard]] RedistributionPlan planRedistribution(const ShardState& from, const ShardState& to,
                                                    const PlanOptions& options = {});

}  // namespace meshfuse
