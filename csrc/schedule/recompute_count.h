// Recompute count: at how many positions a kernel would compute the tensors of a group.
//
// Shifts, pads and reshapes need one tensor at several positions, and each is computed separately. Chains of them multiply:
// cat({x[k:], x[:k]}) needs x at two positions, and a chain of n such ops needs it at 2^n. Each reduction of a chain computes its operands
// in a sweep of its own.
#pragma once

#include <cstdint>
#include <string>

#include "schedule/coordinates.h"
#include "schedule/group.h"

namespace meshfuse {

// Limits of a kernel: kValuesOfAnOp values for each op plus kFreeValues, and kMaxValues in total. A value is a tensor at a position.
inline constexpr size_t kValuesOfAnOp = 4;
inline constexpr size_t kFreeValues = 64;
inline constexpr size_t kMaxValues = 1024;

// Why no kernel can compute the group: too many values, or positions too large to compute. Empty if one can.
[[nodiscard]] std::string refuseRecompute(const Group& group, const Coordinates& coordinates);

// The limit for the sum, over all sweeps over a row, of the ops that a sweep computes, if no value is kept for the next sweep.
inline constexpr int64_t kMaxSweepWork = 512;
inline constexpr int64_t kMaxStages = 63;

// Why a kernel with this number of reduction stages would be too large. Empty if it would not.
[[nodiscard]] std::string refuseSweeps(const Group& group, const Coordinates& coordinates);

}  // namespace meshfuse
