// The templates of library calls, of one op each. They say nothing of other groups.
#pragma once

#include "schedule/template.h"

namespace meshfuse {

// A matmul or linear, if the library of the device accepts it.
[[nodiscard]] Verdict judgeContraction(const Group& group, const DeviceInfo& device);
// A scan, a sort or a write by index: a routine of our own.
[[nodiscard]] Verdict judgeRoutine(const Group& group, const DeviceInfo& device);

}  // namespace meshfuse
