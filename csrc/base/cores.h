#pragma once

#include <cstdint>

namespace meshfuse {

// Cores that this process may run on, at least 1; its affinity mask and its cgroup's CPU quota limit them.
[[nodiscard]] int64_t availableCores();

}  // namespace meshfuse
