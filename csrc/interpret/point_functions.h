// The elementwise ops on single elements, in double and in int64, as ir/point_op.h defines them. No code is shared with emitters.
#pragma once

#include <cstdint>

#include "ir/point_op.h"
#include "tensor/dtype.h"

namespace meshfuse::reference {

// Operands a, b, c (unused ones ignored) are values of `type`; the result is still to be rounded to it. Comparisons give 0 or 1. Not for
// ops of integers only.
[[nodiscard]] double applyReal(PointOp op, DataType type, double a, double b, double c);
// Operands of an integer type or Bool; the result still to be wrapped to the type. Not for ops of floating numbers only.
[[nodiscard]] int64_t applyWhole(PointOp op, DataType type, int64_t a, int64_t b, int64_t c);

// Inverse of erf, to the last few bits of double.
[[nodiscard]] double erfInverse(double y);

}  // namespace meshfuse::reference
