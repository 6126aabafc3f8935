// Recompute count: at how many positions a kernel would compute the tensors of a group.
//
// Shifts, pads and reshapes need one tensor at several positions, and each is computed separately. Chains of them multiply:
// cat({x[k:], x[:k]}) needs x at two positions, a chain of n of those at 2^n. Reductions that follow one another compute their
// operands in a sweep each.
#pragma once

#include <string>

#include "schedule/coordinates.h"
#include "schedule/group.h"

namespace meshfuse {

// A kernel computes at most kValuesOfAnOp values for each op and kFreeValues more, in all kMaxValues. A value is a tensor at a
// position.
inline constexpr size_t kValuesOfAnOp = 4;
inline constexpr size_t kFreeValues = 64;
inline constexpr size_t kMaxValues = 1024;

// Why no kernel can compute the group: too many values, or positions too large to compute. Empty if one can.
[[nodiscard]] std::string refuseRecompute(const Group& group, const Coordinates& coordinates);

// Ops times sweeps that the sweeps over a row compute at most, if no value is kept from one to the next.
inline constexpr int kMaxSweepWork = 512;
inline constexpr int kMaxStages = 63;

// Why a kernel with so many reductions one after the other would be too large. Empty if it would not.
[[nodiscard]] std::string refuseSweeps(const Group& group, const Coordinates& coordinates);

}  // namespace meshfuse
