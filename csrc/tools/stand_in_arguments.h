// Arguments to compile for without values: tensors of the right sizes whose memory must not be touched.
#pragma once

#include <vector>

#include "tensor/argument.h"
#include "tools/options.h"

namespace meshfuse {

class Fusion;

// In the local sizes of a rank, contiguous, aligned to 64 bytes. UserError as inputShapes and checkAnnotations.
[[nodiscard]] std::vector<Argument> standInArguments(const Fusion& fusion, const ProgramOptions& options, int rank = 0);

}  // namespace meshfuse
