// The speed of this machine at the work that planning consists of: map inserts, small allocations, strings. Machines differ threefold in it,
// so a goal in absolute time is that of the reference machine, scaled by this loop's time in the same run.
#pragma once

namespace meshfuse {

// Time of the loop on the machine to which goals in absolute time refer: 2 virtual cores of an Intel Xeon with AMX, otherwise idle,
// 2026-11-22. There a warm call of an 8x8 add takes 63 ns, and 48 layers are planned in 117 ms.
inline constexpr double kReferenceMilliseconds = 21;

// Time of the loop here, the median of several runs; measured at the first call.
[[nodiscard]] double calibrationMilliseconds();

}  // namespace meshfuse
