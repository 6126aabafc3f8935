// Demands: at how many positions a kernel would ask for the tensors of a group.
//
// Shifts, pads and reshapes ask for one tensor at several positions, each computed for itself. Chains of them multiply: what
// cat({x[k:], x[:k]}) asks of x it asks twice, a chain of n of those 2^n times. Reductions that follow one another ask for their
// operands in a sweep each.
#pragma once

#include <string>

#include "schedule/coordinates.h"
#include "schedule/group.h"

namespace meshfuse {

// What a kernel computes at most, tensors times positions: so much for each op, and a few more, in all no more than kMaxDemands.
inline constexpr size_t kDemandsOfAnOp = 4;
inline constexpr size_t kFreeDemands = 64;
inline constexpr size_t kMaxDemands = 1024;

// Why no kernel can compute the group: too many demands, or positions too large to compute. Empty if one can.
[[nodiscard]] std::string refuseDemands(const Group& group, const Coordinates& coordinates);

// What the sweeps over a row compute at most, ops times sweeps, if nothing is kept from one to the next.
inline constexpr int kMaxSweepWork = 512;
inline constexpr int kMaxRounds = 63;

// Why a kernel with so many reductions one after the other would be too large. Empty if it would not.
[[nodiscard]] std::string refuseSweeps(const Group& group, const Coordinates& coordinates);

}  // namespace meshfuse
