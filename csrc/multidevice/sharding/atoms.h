// Atoms: the mesh axes, cut into parts for a pair of shardings. An axis is cut if one sharding uses a part of it, or if a digit boundary
// of one sharding falls inside an owned digit of the other. Both shardings then own whole atoms, the axes of the refined mesh.
#pragma once

#include <optional>
#include <vector>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// How finely axes are cut: only at parts that a sharding owns; also at digit boundaries; or into prime factors.
enum class AtomLevel : uint8_t { Axis, Digit, Prime };

struct AtomPair {
  RefinedMesh on;
  PlanState from;
  PlanState to;
};

// nullopt if the two states cut an axis in ways that do not nest (one into 2 x 3, the other into 3 x 2). The meshes are equal.
[[nodiscard]] std::optional<AtomPair> atomPair(const ShardState& from, const ShardState& to, AtomLevel level);

// The same if the states are one, or only one of them cuts axes; InternalError if its cuts do not nest.
[[nodiscard]] AtomPair nestedAtoms(const ShardState& from, const ShardState& to);

// A plan state as digits owned by the axes of `mesh`, the refined one.
[[nodiscard]] ShardState shardState(const PlanState& state, const DeviceMesh& mesh, const std::vector<IntExpr>& shape);

}  // namespace meshfuse
