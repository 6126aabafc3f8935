// The tile program of a copy between two layouts.
#pragma once

#include "tensor/tensor.h"
#include "tile/tile.h"

namespace meshfuse {

// For a GPU: the elements `from` to the elements `to`, which have equal sizes and types. Slots: the address of `from`, then that of `to`. The
// program depends on sizes and strides, not on addresses.
[[nodiscard]] tile::Program copyProgram(const StridedElements& to, const StridedElements& from);

}  // namespace meshfuse
