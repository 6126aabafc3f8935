// Elementwise ops in CUDA C++.
#pragma once

#include <span>
#include <string>

#include "codegen/cuda/c_text.h"
#include "ir/point_op.h"

namespace meshfuse::cuda {

// Coarse: the result only reaches 16-bit values, so a quotient may be a few units in the last place of a float off.
enum class Precision : uint8_t { Full, Coarse };

// The op on operands of type `t` (for Where: the type of the second operand). The texts of operands and result need no parentheses as
// operands of any operator.
[[nodiscard]] std::string pointText(PointOp op, DataType t, Precision precision, std::span<const std::string> operands,
                                    Sections& uses);

}  // namespace meshfuse::cuda
