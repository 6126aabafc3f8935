// Ops whose result along a dim depends on all elements along it: running sums, and orders.
//
//   cumsum({1, 2, 3}, 0)      {1, 3, 6}
//   sort({3, nan, 1}, 0)      {1, 3, nan} and {2, 0, 1}
//   topk({3, 1, 2}, 2)        {3, 2} and {0, 2}
//
// An order is that of the values; NaN is larger than all numbers and equal to itself, as in PyTorch, and -0 equals 0. Equal elements
// stay in the order they have, ascending and descending, so that every result is the only one: `stable` asks for nothing more. Indices
// are Int; values have x's type. A dim counts from the end when negative; a tensor without dims has the one dim 0.
// UserError `[op]` on a bad dim or count.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/operand.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

// The reduction, by `op` and in x's type, of all elements up to each.
TensorView* scan(TensorView* x, int64_t dim, ReduceOp op);
// In the type that sum and prod have: Float for 16 bits, Int for integers and Bool, unless dtype says otherwise.
TensorView* cumsum(TensorView* x, int64_t dim, std::optional<DataType> dtype = std::nullopt);
TensorView* cumprod(TensorView* x, int64_t dim, std::optional<DataType> dtype = std::nullopt);

// Where along dim the smallest (largest) element is, then the next one, and so on.
TensorView* argsort(TensorView* x, int64_t dim = -1, bool descending = false, bool stable = false);

struct SortResult {
  TensorView* values = nullptr;
  TensorView* indices = nullptr;
};
SortResult sort(TensorView* x, int64_t dim = -1, bool descending = false, bool stable = false);

struct TopKResult {
  TensorView* values = nullptr;
  TensorView* indices = nullptr;
};
// The k largest (smallest) elements along dim and where they are, in order whether `sorted` or not. k: at most the extent, which a call
// shows if it is not known here.
TopKResult topk(TensorView* x, Operand k, int64_t dim = -1, bool largest = true, bool sorted = true);

}  // namespace meshfuse
