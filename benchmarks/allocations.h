// The heap allocations of a benchmark.
#pragma once

#include <cstdint>

namespace meshfuse {

// Of this process so far. A program that calls it counts all of them.
[[nodiscard]] int64_t heapAllocations();

}  // namespace meshfuse
