// The root dim of a result that each stored dim of an operand becomes: dimsRead of ir/op_rule.h from the side of the operand, with
// windows as offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "digits/digit.h"
#include "digits/int_expr.h"

namespace meshfuse {

class Expr;
class IterDomain;
class Prover;
class TensorView;

inline constexpr int64_t kUnmapped = -1;

// One stored dim of an operand.
struct OperandDim {
  int64_t root = kUnmapped;  // dim of the result's root domain, or kUnmapped: read whole (indexed by data, dropped)
  IntExpr offset = 0;        // a window: result index j reads operand index j + offset, if that exists
  bool window = false;       // Slice, Pad, Cat along this dim
  bool strided = false;      // a slice with step > 1
};

// One entry for each stored dim of the operand. Empty for scalar operands. A result that is a
// partial sum over an indexed dim (embedding, gather) counts that dim as its last root dim.
[[nodiscard]] std::vector<OperandDim> operandDims(const Expr* expr, int64_t operand);

// True if an owned digit has the same value at index j of a window and at index j + offset of the operand, because its period divides
// the offset.
[[nodiscard]] bool survivesWindow(const Digit& d, const OperandDim& dim, const Prover& prover);

// True if all indices of the result's dim read the only element of the operand's dim.
[[nodiscard]] bool stretches(const IterDomain* operand, const OperandDim& dim, const IterDomain* result);

// True if stretches() depends on unknown sizes: the operand's dim may have one element that stretches, or be as long as the result's dim.
[[nodiscard]] bool mayStretch(const Expr& expr, const IterDomain* operand, const OperandDim& dim,
                              const IterDomain* result, const Prover& prover);

}  // namespace meshfuse
