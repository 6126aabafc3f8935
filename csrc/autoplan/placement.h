// Placement: the dim of a tensor that each mesh axis cuts into blocks, the shardings among which a search chooses.
//
//   mesh {y: 2, x: 4}     {0, 1}: S0(y) S1(x)     {-1, 0}: S0(x)     {0, 0}: S0(y,x), the outer axis owns the outer digit
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

inline constexpr int8_t kUncut = -1;
using Placement = std::vector<int8_t>;  // by axis: a dim of noReductions(), or kUncut
using Sizes = std::vector<int64_t>;

enum class Division : uint8_t { Even, Uneven };

// Whether the axes on each dim divide it; with Division::Uneven, whether no rank is without elements.
[[nodiscard]] bool fits(const Placement& placement, const Sizes& shape, const Sizes& axes, Division division);
// All that fit, in lexicographic order: whole first.
[[nodiscard]] std::vector<Placement> placementsOf(const Sizes& shape, const Sizes& axes, Division division);
// Elements of the largest part.
[[nodiscard]] double localElements(const Placement& placement, const Sizes& shape, const Sizes& axes);

[[nodiscard]] ShardState stateOf(const Placement& placement, const Sizes& shape, const DeviceMesh& mesh);
// Nothing if the state is not one of blocks of whole axes, the outer axis outside, or is a partial sum.
[[nodiscard]] std::optional<Placement> placementOf(const ShardState& state);

}  // namespace meshfuse
