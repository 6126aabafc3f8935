// The redistribution planner: a chain of collectives that turns one sharding of a tensor into another.
//
//   mesh {x: 4}, T[8, 8]   S0(x) -> S1(x)        all-to-all over x, 12 elements received per rank
//                          S0(x) -> R            all-gather over x
//                          P(x) -> S0(x)         reduce-scatter over x
//                          R -> S1(x)            slice, nothing received
//
// Best-first search over states; a move takes or frees digits of a set of atoms at once. No intermediate state is larger than
// the larger of source and destination. Where no such chain is found the tensor is gathered and sliced, and `note` says so: every
// pair on the same devices has a plan. The plan depends on its arguments only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "multidevice/mesh/device_mesh.h"
#include "multidevice/sharding/plan_state.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// In order of preference where costs are equal.
enum class StepKind : uint8_t { Slice, Permute, AllToAll, AllGather, ReduceScatter, AllReduce };
[[nodiscard]] std::string_view name(StepKind kind);

struct CommStep {
  StepKind kind = StepKind::Slice;
  DeviceMesh mesh;                  // the mesh whose axes are the atoms of both states
  DeviceMesh tensorMesh;            // the mesh that `mesh` refines
  std::vector<AtomOrigin> origins;  // of the atoms in it
  std::vector<int> axes;            // the team, ascending
  PlanState before;
  PlanState after;
  int64_t elements = 0;          // received by the busiest rank
  std::vector<int64_t> sources;  // Permute: for each device of the mesh (row-major) the position it receives from

  bool communicates() const { return kind != StepKind::Slice; }
  std::string toString() const;  // all_gather(x)
};

struct PlanOptions {
  double alpha = 1;              // cost of a call, in elements
  std::optional<int64_t> bound;  // local elements of every intermediate state; default: the larger of both ends
  std::vector<StepKind> forbid;
  int maxStates = 3000;
};

struct RedistributionPlan {
  std::vector<CommStep> steps;
  double cost = 0;
  int64_t elements = 0;   // received by the busiest rank, summed over steps
  int64_t peakState = 0;  // local elements of the largest state
  std::string note;       // why the plan is not the best kind, empty otherwise

  // The communication steps, as ["all_to_all(x)", "all_gather(y)"].
  std::vector<std::string> communications() const;
};

// Both states have constant sizes and the same extents, and the destination is partial over no axis the source is not.
// InternalError otherwise; UserError if the meshes have different devices.
[[nodiscard]] RedistributionPlan planRedistribution(const ShardState& from, const ShardState& to,
                                                    const PlanOptions& options = {});

}  // namespace meshfuse
