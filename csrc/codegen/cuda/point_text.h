// Elementwise ops in CUDA C++.
#pragma once

#include <span>
#include <string>

#include "codegen/cuda/c_text.h"
#include "ir/point_op.h"

namespace meshfuse::cuda {

// The op on operands of type `t` (that of the second operand for Where); operand texts bind tighter than any operator,
// and so does the result. `coarse`: the result only reaches 16-bit values, so a few units in the last place of a float
// are free.
[[nodiscard]] std::string pointText(PointOp op, DataType t, bool coarse, std::span<const std::string> operands,
                                    Sections& uses);

// Ops too dear to be evaluated a second time.
[[nodiscard]] bool isCheap(PointOp op);

}  // namespace meshfuse::cuda
