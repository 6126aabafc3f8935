// The indices of a dim that one rank holds, as runs. With uneven parts, the indices of two ranks differ in more than an offset.
//
//   N = 10 in blocks over x: 4        ranks hold 0:3, 3:6, 6:9, 9:10
//   N = 10 cyclic over x: 4           0:10:4, 1:10:4, 2:10:4, 3:10:4
//   parts {2, 3, 4, 1} over x: 4      0:2, 2:5, 5:9, 9:10
#pragma once

#include <cstdint>
#include <vector>

#include "ir/index_run.h"
#include "multidevice/mesh/plan_state.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

// Indices below the extent whose owned digits have the values of the device at these coordinates; ascending. Constants.
[[nodiscard]] IndexRuns localIndices(const DigitList& dim, const std::vector<int64_t>& coordinates);
// `coordinates` by atom.
[[nodiscard]] IndexRuns localIndices(const PlanState& state, size_t dim, int64_t extent,
                                     const std::vector<int64_t>& coordinates);
// By dim of a state of constant sizes. A device outside its mesh holds nothing.
[[nodiscard]] IndexBlock localIndices(const ShardState& state, int64_t device);

// How many elements of each dim a device holds.
[[nodiscard]] std::vector<int64_t> localShape(const ShardState& state, int64_t device);
// The block without elements, for a device that holds no part of a tensor with so many dims; it has one dim if the tensor has none.
[[nodiscard]] std::vector<int64_t> shapeOfNothing(size_t dims);
// True if a device holds a part of a tensor; a tensor without a mesh is on all devices.
[[nodiscard]] bool holds(const DeviceMesh& mesh, int64_t device);

// True if some dim has parts of different sizes.
[[nodiscard]] bool isRagged(const ShardState& state);

[[nodiscard]] IndexRuns intersection(const IndexRuns& a, const IndexRuns& b);
// The positions of the indices `some` within the indices `all`. InternalError if an index is missing.
[[nodiscard]] IndexRuns positionsIn(const IndexRuns& all, const IndexRuns& some);
// Indices to runs; ascending.
[[nodiscard]] IndexRuns runsOf(const std::vector<int64_t>& indices);

}  // namespace meshfuse
