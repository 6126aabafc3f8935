// How the stored dims of an operand meet the root dims of a result, as shardings need it: dimsRead of ir/op_rule.h seen
// from the operand, with windows resolved.
#pragma once

#include <vector>

#include "digits/digit.h"
#include "digits/int_expr.h"

namespace meshfuse {

class Expr;
class IterDomain;
class Prover;
class TensorView;

inline constexpr int kUnmapped = -1;

// One stored dim of an operand.
struct OperandDim {
  int root = kUnmapped;  // dim of the result's root domain, or kUnmapped: read whole (indexed by data, dropped)
  IntExpr offset = 0;    // a window: result index j reads operand index j + offset, where that exists
  bool window = false;   // Slice, Pad, Cat along this dim
  bool strided = false;  // a slice with step > 1
};

// One entry a stored dim of the operand. Empty for scalar operands. A result that is a
// partial sum over an indexed dim (embedding, gather) counts that dim as its last root dim.
[[nodiscard]] std::vector<OperandDim> operandDims(const Expr* expr, int operand);

// Whether an owned digit keeps its place when index j of a window is index j + offset of the operand: its period divides the
// offset, so that both have the same value.
[[nodiscard]] bool survivesWindow(const Digit& d, const OperandDim& dim, const Prover& prover);

// Whether all indices of the result's dim read the one element of the operand's.
[[nodiscard]] bool stretches(const IterDomain* operand, const OperandDim& dim, const IterDomain* result);

// Whether that depends on sizes that are not known: the operand's dim may be one element that stretches, or as long as the result's.
[[nodiscard]] bool mayStretch(const Expr& expr, const IterDomain* operand, const OperandDim& dim,
                              const IterDomain* result, const Prover& prover);

}  // namespace meshfuse
