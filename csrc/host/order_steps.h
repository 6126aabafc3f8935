// Orders the steps of a host program and plans its arena.
#pragma once

#include <cstdint>
#include <vector>

#include "host/program.h"

namespace meshfuse {

// The arena of a program whose collectives run beside other steps is at most this share larger than on one queue.
inline constexpr double kMostArenaGrowth = 0.25;

// Puts the steps into the order of issue, with the queue and the waits of each; fills in the teams, the arena and the offsets in it.
// storage: for each tensor, the tensor whose memory it shares. overlap.allowed: collectives get queues of their own and run beside other steps,
// as far as kMostArenaGrowth allows; else all steps stay on queue 0 in their order. Collectives stay in their order.
void orderSteps(HostProgram& program, const std::vector<int64_t>& storage, const Overlap& overlap);

}  // namespace meshfuse
