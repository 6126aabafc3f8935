// Whether the collectives of a program are worth running beside other work.
#pragma once

#include "host/program.h"

namespace meshfuse {

struct DeviceInfo;
struct PlannedProgram;

// Within the memory of the program's planner settings. Allowed, if `wanted`, where some redistribution of the planned global program writes at
// least 256 KiB (4 KiB on a GPU), and ops that write as much neither lead to it nor follow from it, in the call that was planned. The same on
// all ranks: then all make their collectives in the lanes of teams.
// They end together, if ranks may be ahead of their collectives, where some kernel may refuse an index.
[[nodiscard]] Overlap overlapOf(const PlannedProgram& program, bool wanted, const DeviceInfo& device);

}  // namespace meshfuse
