// Rows of NaN, infinities, signed zeros and large values, for reductions.
#pragma once

#include "tensor/tensor.h"

namespace meshfuse {

// Rows of `length` elements, one for each nasty content.
[[nodiscard]] Tensor nastyRows(int64_t length, DataType type);
[[nodiscard]] int64_t nastyRowCount();

}  // namespace meshfuse
