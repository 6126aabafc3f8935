// How the dims of an operand meet the dims of a result: the one table of ops that shardings need.
#pragma once

#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

class Expr;
class TensorView;

inline constexpr int kUnmapped = -1;

// One stored dim of an operand.
struct OperandDim {
  int root = kUnmapped;    // dim of the result's root domain, or kUnmapped: read whole (indexed by data, dropped)
  IntExpr offset = 0;      // a window: result index j reads operand index j + offset, where that exists
  bool window = false;     // Slice, Pad, Cat along this dim
  bool strided = false;    // a slice with step > 1
};

// One entry a stored dim of the operand; `result` is a tensor output of the expr. Empty for scalar operands.
[[nodiscard]] std::vector<OperandDim> operandDims(const Expr* expr, int operand, const TensorView* result);

}  // namespace meshfuse
