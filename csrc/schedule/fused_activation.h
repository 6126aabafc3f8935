// The activation after a matmul or linear that a library may apply in the same call.
//
//   T2 = linear(T0, T1), T3 = maximum(T2, 0)   ->   T3 is relu of T2
#pragma once

#include <optional>

#include "device/device_info.h"
#include "schedule/group.h"

namespace meshfuse {

// Of a group whose first op is a contraction: the function of its result that the other ops compute, exactly and in its type; None if there
// are no other ops. 16-bit results may be widened to Float before it and rounded after it. Nothing for any other group.
[[nodiscard]] std::optional<Activation> activationOf(const Group& group);

}  // namespace meshfuse
