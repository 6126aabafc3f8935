// The part of a tensor that one rank holds.
#pragma once

#include <cstdint>
#include <optional>
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
// Of one dim of it.
[[nodiscard]] IndexRuns heldRuns(const PlanState& state, int64_t dim, int64_t extent,
                                 const std::vector<int64_t>& coordinates);
// The given sizes of the parts of a dim; empty without such parts.
[[nodiscard]] std::vector<int64_t> constantParts(const DigitList& dim);
// Of one dim: the indices below its extent whose owned digits have the values of the device at these coordinates.
[[nodiscard]] IndexRuns heldRuns(const DigitList& dim, const std::vector<int64_t>& coordinates);

// A digit of a dim, and its value on a rank if an axis owns it.
struct RankDigit {
  IntExpr size;
  std::optional<IntExpr> value;
  bool isOwned() const { return value.has_value(); }
};
// The same for digits without padding, as expressions. No value if the indices are not one run: an owned digit is between local ones.
[[nodiscard]] std::optional<SymbolicRun> heldRun(const std::vector<RankDigit>& digits);

// The sizes of the argument or result on a device that holds no part of a tensor with this number of dims: a tensor without elements. It
// has one dim if the tensor has none, because a tensor without dims has one element.
[[nodiscard]] std::vector<int64_t> shapeOfNothing(size_t dims);
// True if a device is in the mesh of a tensor. A tensor without a mesh is on all devices.
[[nodiscard]] bool holds(const DeviceMesh& mesh, int64_t device);

// True if some dim has parts of different sizes.
[[nodiscard]] bool isRagged(const ShardState& state);

}  // namespace meshfuse
