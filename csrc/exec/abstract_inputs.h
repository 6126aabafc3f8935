// Abstract inputs: arguments with sizes but without values, to compile for. Their memory must not be read or written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tensor/argument.h"

namespace meshfuse {

class Fusion;

// In the local sizes of a rank, contiguous, aligned to 64 bytes. `sizes`: one entry for each input, as concretize() takes them. UserError as
// concretize() and checkAnnotations() of a fusion of the inputs alone.
[[nodiscard]] std::vector<Argument> abstractInputs(const Fusion& fusion, std::span<const std::vector<int64_t>> sizes,
                                                   int64_t rank = 0);

}  // namespace meshfuse
