// How the ranks of a machine share its cores.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace meshfuse {

// The cores that this process may run on, as a text of kCoreSetSize characters: '1' for each core that it may use, else '0'.
[[nodiscard]] std::string allowedCores();
inline constexpr int64_t kCoreSetSize = 1024;

// The number of cores that one rank or more may use. `sets`: allowedCores() of each rank of a machine.
[[nodiscard]] int64_t jointCores(std::span<const std::string> sets);

// The cores that the rank with the set sets[own] has for its threads: a core counts in equal parts for all ranks that may use it. With launchers
// that bind ranks to disjoint sets, it is the number of its own cores; if all ranks may use all cores, it is cores / ranks. At most
// `quota` / ranks.
//
//   sets 1100, 0011: 2 and 2      1111, 1111: 2 and 2      1000, 1111: 0.5 and 3.5
[[nodiscard]] double coreShare(std::span<const std::string> sets, int64_t own, int64_t quota);

}  // namespace meshfuse
