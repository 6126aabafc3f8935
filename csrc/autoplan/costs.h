// Costs of communication: the planner's steps between two placements, timed by a latency and a bandwidth for each mesh axis.
//
//   seconds of a step = latency + bytes that a rank receives / bandwidth      of the slowest axis that takes part, or as measured
//
// In even blocks the steps depend only on which axes cut the same dims, and the bytes are a fixed part of the tensor. So the planner runs once
// for each such pattern, on a small tensor, and all tensors share the result.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "autoplan/machine.h"
#include "autoplan/placement.h"
#include "ir/planner_settings.h"
#include "multidevice/sharding/planner.h"

namespace meshfuse {

struct CommCost {
  double seconds = 0;
  double bytes = 0;  // received by a rank

  CommCost& operator+=(const CommCost& more) {
    seconds += more.seconds;
    bytes += more.bytes;
    return *this;
  }
};

// The settings with which redistributions of an annotated program are planned: the user's, with a cost for each axis of the mesh if its
// links differ and the user gave none.
[[nodiscard]] PlannerSettings withLinkCosts(PlannerSettings settings, const DistributedConfig& machines,
                                            const DeviceMesh& mesh);

class RedistributionCosts {
 public:
  // `settings`: those of the annotated program.
  RedistributionCosts(const DistributedConfig& machines, const DeviceMesh& mesh, const PlannerSettings& settings);

  struct Summed {
    std::vector<int64_t> axes;  // over which the tensor is a partial sum before; they cut no dim
    int64_t size = 0;           // bytes of an element until it is combined
  };
  // Moving a tensor of this shape, with elements of `size` bytes.
  CommCost of(const Placement& from, const Summed& summed, const Placement& to, const Sizes& shape, int64_t size);
  CommCost of(const Placement& from, const Placement& to, const Sizes& shape, int64_t size) {
    return of(from, {}, to, shape, size);
  }

  int64_t patterns() const { return std::ssize(patterns_); }  // for which the planner ran

 private:
  struct Step {
    Collective kind;
    int64_t ranks;  // of a team
    double part;    // of the elements of the tensor that a rank receives
    int64_t axis;   // whose link is used
    bool isOfSum;   // that is not combined yet
  };
  using Steps = std::vector<Step>;

  Steps plan(const Placement& from, const std::vector<int64_t>& summed, const Placement& to, const Sizes& shape);

  DeviceMesh mesh_;
  Sizes axes_;
  std::vector<LinkSpeed> links_;  // by axis
  PlanOptions options_;
  std::map<std::vector<int64_t>, Steps> patterns_;
};

}  // namespace meshfuse
