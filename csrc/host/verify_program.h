// Proves that the recorded order of a host program orders all accesses of the same memory.
#pragma once

#include <optional>
#include <string>

namespace meshfuse {

struct HostProgram;
struct ProgramSizes;

// The names and tensors of two steps that access the same byte, one of them writing it, although neither happens before the other; or of a
// step that waits for a later one. Nothing if there are none.
[[nodiscard]] std::optional<std::string> unorderedAccess(const HostProgram& program, const ProgramSizes& sizes);
// InternalError if there is such a pair.
void verifyHostProgram(const HostProgram& program, const ProgramSizes& sizes);

}  // namespace meshfuse
