// Atoms: the mesh axes, cut where one of two shardings uses a part of an axis, or where a digit boundary of one falls inside an
// owned digit of the other. Both shardings then own whole atoms, which are the axes of the refined mesh.
#pragma once

#include <optional>
#include <vector>

#include "multidevice/mesh/comm_step.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// How far axes are cut: only where a side owns a part of one, also where boundaries of digits cross, or to prime factors.
enum class AtomLevel : uint8_t { Axis, Digit, Prime };

struct AtomPair {
  RefinedMesh on;
  PlanState from;
  PlanState to;
};

// nullopt where the two cut an axis in ways that do not nest (2 then 3 against 3 then 2). The meshes are equal.
[[nodiscard]] std::optional<AtomPair> atomPair(const ShardState& from, const ShardState& to, AtomLevel level);

// A plan state as digits owned by the axes of `mesh`, the refined one.
[[nodiscard]] ShardState shardState(const PlanState& state, const DeviceMesh& mesh, const std::vector<IntExpr>& shape);

}  // namespace meshfuse
