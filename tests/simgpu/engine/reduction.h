// Reductions of elements over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../communicator_protocol.h"

namespace simgpu {

// The reduction of arrays of one length. Block b of 16 elements goes around as on a ring: first the array b + 1, then b + 2, last b. Types of
// 16 bits are reduced in float and rounded once.
std::string reduce(uint32_t type, uint32_t operation, const std::vector<std::string_view>& arrays);

}  // namespace simgpu
