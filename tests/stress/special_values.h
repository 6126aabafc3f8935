// Rows of NaN, infinities, signed zeros and large values, for reductions.
#pragma once

#include "tensor/tensor.h"

namespace meshfuse {

// Rows of `length` elements, one for each kind of stress content.
[[nodiscard]] Tensor stressRows(int64_t length, DataType type);
[[nodiscard]] int64_t stressRowCount();

}  // namespace meshfuse
