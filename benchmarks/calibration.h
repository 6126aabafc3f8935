// The speed of this machine at the work that planning consists of: map inserts, small allocations, strings. Machines differ threefold in it,
// so a goal in absolute time is that of the reference machine, scaled by this loop's time in the same run.
#pragma once

namespace meshfuse {

// Time of the loop on the machine on which the goals in absolute time were set: 2 cores of a Xeon with AVX-512, 2026-11-22.
inline constexpr double kReferenceMilliseconds = 0;

// Time of the loop here, the median of several runs; measured at the first call.
[[nodiscard]] double calibrationMilliseconds();

}  // namespace meshfuse
