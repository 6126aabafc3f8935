// Abstract inputs: arguments with sizes but without values, to compile for. Their memory must not be read or written.
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/argument.h"
#include "tools/options.h"

namespace meshfuse {

class Fusion;

// In the local sizes of a rank, contiguous, aligned to 64 bytes. UserError as inputShapes and checkAnnotations.
[[nodiscard]] std::vector<Argument> abstractInputs(const Fusion& fusion, const ProgramOptions& options,
                                                   int64_t rank = 0);

}  // namespace meshfuse
