// How the stored dims of an operand meet the root dims of a result, as shardings need it: the table of analysis/dim_map.h seen
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

// One entry a stored dim of the operand; `result` is a tensor output of the expr. Empty for scalar operands. A result that is a
// partial sum over an indexed dim (embedding, gather) counts that dim as its last root dim.
[[nodiscard]] std::vector<OperandDim> operandDims(const Expr* expr, int operand, const TensorView* result);

// Whether an owned digit keeps its place when index j of a window is index j + offset of the operand: its period divides the
// offset, so that both have the same value.
[[nodiscard]] bool survivesWindow(const Digit& d, const OperandDim& dim, const Prover& prover);

// Whether all indices of the result's dim read the one element of the operand's.
[[nodiscard]] bool stretches(const IterDomain* operand, const OperandDim& dim, const IterDomain* result);

// The operand whose elements data pick, and the dim along which, of embedding, take_along_axis, gather and index_select.
struct IndexedDim {
  int operand = kUnmapped;  // kUnmapped: no such op
  int dim = 0;
};
[[nodiscard]] IndexedDim indexedDim(const Expr* expr);

}  // namespace meshfuse
