// The part of a tensor that one rank holds.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/part.h"
#include "multidevice/mesh/plan_state.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// At a state of constant sizes. A device outside of its mesh holds an empty part.
[[nodiscard]] Part heldPart(const ShardState& state, int64_t device);
// At a state of a plan; `coordinates` by atom.
[[nodiscard]] Part heldPart(const PlanState& state, const std::vector<int64_t>& extents,
                            const std::vector<int64_t>& coordinates);
// Of one dim: the indices below its extent whose owned digits have the values of the device at these coordinates.
[[nodiscard]] IndexRuns heldRuns(const DigitList& dim, const std::vector<int64_t>& coordinates);

// The sizes of an argument or result on a device that holds nothing of a tensor of so many dims: it has no elements, and so it has a
// dim even where the tensor has none.
[[nodiscard]] std::vector<int64_t> shapeOfNothing(size_t dims);
// Whether a device holds some of a tensor: a tensor without a mesh is on all.
[[nodiscard]] bool holds(const DeviceMesh& mesh, int64_t device);

// Some dim has parts of different sizes.
[[nodiscard]] bool isRagged(const ShardState& state);

}  // namespace meshfuse
