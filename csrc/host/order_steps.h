// Orders the steps of a host program and finds the life of each block of its arena.
#pragma once

#include "host/happens_before.h"
#include "host/program.h"

namespace meshfuse {

// The arena of a program whose collectives run beside other steps is at most this share larger than on one queue, and no larger if arguments,
// results and arena then take more than Overlap::memory.
inline constexpr double kMostArenaGrowth = 0.25;

// Puts the steps into the order of issue, with the queue and the waits of each; fills in the teams and the blocks of the arena.
// overlap.allowed: collectives get queues of their own and run beside other steps, as far as kMostArenaGrowth and Overlap::memory allow. If
// the size of the arena is not constant, each step waits for the one before. Without overlap all steps stay on queue 0 in their order.
// Collectives stay in their order.
void orderSteps(HostProgram& program, const Overlap& overlap);

}  // namespace meshfuse
