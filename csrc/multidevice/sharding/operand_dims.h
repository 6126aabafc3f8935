// The root dim of a result that each stored dim of an operand becomes: dimsRead of ir/op_rule.h from the side of the operand, with
// windows as offsets.
#pragma once

#include <cstdint>
#include <vector>

#include "digits/digit.h"
#include "digits/int_expr.h"
#include "ir/part.h"

namespace meshfuse {

class Expr;
class IterDomain;
class Prover;
class TensorView;

inline constexpr int64_t kUnmapped = -1;

// One stored dim of an operand.
struct OperandDim {
  int64_t root = kUnmapped;  // dim of the result's root domain, or kUnmapped: read whole (indexed by data, dropped)
  IntExpr offset = 0;        // a window: result index j reads operand index j * step + offset, if that exists
  IntExpr step = 1;
  bool window = false;  // Slice, Pad, Cat along this dim
};

// One entry for each stored dim of the operand. Empty for scalar operands. A result that is a partial sum over an indexed dim (embedding,
// gather) counts that dim as its last root dim.
[[nodiscard]] std::vector<OperandDim> operandDims(const Expr* expr, int64_t operand);
// The same for the dims of the operand's state, which has no entry for the partial dim.
[[nodiscard]] std::vector<OperandDim> operandDimsOfState(const Expr* expr, int64_t operand);

// The elements of an operand of these sizes that a Slice, Pad or Cat with constant offsets reads for a part of its result.
[[nodiscard]] Part windowReads(const std::vector<OperandDim>& dims, const std::vector<int64_t>& sizes,
                               const Part& made);

// True if an owned digit has the same value at index j of a window and at index j + offset of the operand, because its period divides
// the offset.
[[nodiscard]] bool survivesWindow(const Digit& d, const OperandDim& dim, const Prover& prover);

// True if all indices of the result's dim read the only element of the operand's dim.
[[nodiscard]] bool stretches(const IterDomain* operand, const OperandDim& dim, const IterDomain* result);

// True if stretches() depends on unknown sizes: the operand's dim may have one element that stretches, or be as long as the result's dim.
[[nodiscard]] bool mayStretch(const Expr& expr, const IterDomain* operand, const OperandDim& dim,
                              const IterDomain* result, const Prover& prover);

}  // namespace meshfuse
