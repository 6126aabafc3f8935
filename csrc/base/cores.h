#pragma once

#include <cstdint>

namespace meshfuse {

// Cores that this process may run on, at least 1; its affinity mask and its cgroup's CPU quota limit them.
[[nodiscard]] int64_t availableCores();
// The CPU quota of this process's cgroup, in cores, rounded up; the largest number if it has none.
[[nodiscard]] int64_t coreQuota();

}  // namespace meshfuse
