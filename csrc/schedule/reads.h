// Reads: the positions at which an op reads its operands, for a position of its result.
//
// Shape ops only rewrite positions: broadcast drops dims, permute reorders them, reshape divides them, slice shifts them, pad and
// cat guard them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/ranges.h"
#include "digits/int_expr.h"
#include "ir/op_rule.h"
#include "tile/tile.h"

namespace meshfuse {

class Expr;
class TensorView;

struct Read {
  std::vector<IntExpr> at;
  // Pad and cat: the operand has an element there only if all of these hold. Proven ones are left out.
  std::vector<tile::Pred> where;
};

// The name of an extent or offset of the fusion in a kernel.
using SizeName = std::function<IntExpr(const IntExpr&)>;

// The read of tensor operand number `operand` at a position `at` of e's result. `e` is a copy, a point op, a cast, expand,
// broadcast, squeeze, permute, reshape, slice, pad or cat.
[[nodiscard]] Read readBy(const Expr& e, size_t operand, const std::vector<IntExpr>& at, const SizeName& size);

// `at` with 0 where dims of a tensor of this shape have one element: that element is read at all positions.
template <class T>
[[nodiscard]] std::vector<T> stretched(const std::vector<IntExpr>& shape, const std::vector<T>& at) {
  return mapped(indices(shape), [&](int64_t d) { return shape[d].isConst(1) ? T{0} : at[d]; });
}

// True if an op reads operands at other positions than the positions of its result: windows, concatenations, indexed rows.
[[nodiscard]] bool readsElsewhere(const Expr& e);

// A stored dim of an operand and the stored dim of the result at whose positions it is read, each as a position in noReductions().
struct DimPair {
  size_t operand;
  size_t result;
};
// `operand`: its number among all operands, scalars included.
[[nodiscard]] std::vector<DimPair> linkedDims(const Expr& e, int64_t operand);

// The position of the index operand that an indexing op reads, for a position of its result. Dims of one element are not set to 0.
template <class T>
[[nodiscard]] std::vector<T> positionOfIndex(const Expr& e, const std::vector<T>& at) {
  return mapped(linkedDims(e, indexOf(e)), [&](const DimPair& dims) { return at[dims.result]; });
}

// A position of this size, composed of divided positions, costs more to compute than storing the tensor in memory.
inline constexpr int64_t kMaxPositionSize = 32;

// True if it is cheaper to store a reshape's operand, which is read at `read` for its result at `at`, in memory first.
[[nodiscard]] bool isOvergrown(const std::vector<IntExpr>& at, const std::vector<IntExpr>& read);
[[nodiscard]] std::string overgrownReason(const Expr& reshape);

}  // namespace meshfuse
