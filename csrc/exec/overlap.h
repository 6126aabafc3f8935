// Whether the collectives of a program are worth running beside other work.
#pragma once

#include "host/program.h"

namespace meshfuse {

class Fusion;

// Allowed, if `wanted`, where some redistribution of the planned global program writes at least 256 KiB, and ops that write as much
// neither lead to it nor follow from it. The same on all ranks: then all make their collectives in the lanes of teams.
// They end together if some kernel may refuse an index.
[[nodiscard]] Overlap overlapOf(const Fusion& planned, bool wanted);

}  // namespace meshfuse
