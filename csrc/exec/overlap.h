// Whether the collectives of a program are worth running beside other work.
#pragma once

#include "host/happens_before.h"

namespace meshfuse {

struct DeviceInfo;
struct PlannedProgram;

// Fields of the result. allowed: `wanted` is true, and in the call that was planned some redistribution writes at least 256 KiB, and the
// ops that neither lead to it nor follow from it together write at least 256 KiB too (on a GPU: 4 KiB for both). It is the same on all
// ranks, so all of them make their collectives in the lanes of teams. memory: PlannerSettings::memory of the program. endsTogether: some
// kernel may refuse an index.
[[nodiscard]] Overlap overlapOf(const PlannedProgram& program, bool wanted, const DeviceInfo& device);

}  // namespace meshfuse
