// Ranks that their launcher has bound to one core.
#pragma once

#include <cstdint>
#include <string>

namespace meshfuse {

// What to tell the user if this process may run on one core, although the process that started it may run on two or more for each of the
// `ranks` ranks of this host; else empty. By default mpirun binds each rank of a small job to one core.
[[nodiscard]] std::string adviceOnBinding(int64_t ranks);
// The same on standard error, at most once in a process.
void printAdviceOnBinding(int64_t ranks);

}  // namespace meshfuse
