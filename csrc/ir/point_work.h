// How long elementwise ops take, in two classes.
#pragma once

#include "ir/point_op.h"

namespace meshfuse {

// Whether the op is computed by a polynomial or a call: it takes many times as long as an addition.
constexpr bool isFunction(PointOp op) {
  using enum PointOp;
  return info(op).scalarCall || op == Exp || op == Exp2 || op == Erf || op == Log || op == Sigmoid || op == Tanh;
}

}  // namespace meshfuse
