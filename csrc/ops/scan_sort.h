// Ops whose result along a dim depends on all elements along it: running sums, and orders.
//
//   cumsum({1, 2, 3}, 0)      {1, 3, 6}
//   sort({3, nan, 1}, 0)      {1, 3, nan} and {2, 0, 1}
//   topk({3, 1, 2}, 2)        {3, 2} and {0, 2}
//
// NaN is larger than all numbers and equal to itself, as in PyTorch, and -0 equals 0. Equal elements keep their order, in ascending and in
// descending order, so every result is unique, and `stable` changes nothing. Indices are Int; values have x's type. A dim counts from the
// end when negative; a tensor without dims has the one dim 0.
// UserError `[op]` on a bad dim or count.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/operand.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

// Element j of the result is the reduction, by `op` and in x's type, of elements 0 to j.
TensorView* scan(TensorView* x, int64_t dim, ReduceOp op);
// The result has the type of sum and prod: Float for 16 bits, Int for integers and Bool, unless dtype is given.
TensorView* cumsum(TensorView* x, int64_t dim, std::optional<DataType> dtype = std::nullopt);
TensorView* cumprod(TensorView* x, int64_t dim, std::optional<DataType> dtype = std::nullopt);

// The positions along dim of the elements in ascending (descending) order.
TensorView* argsort(TensorView* x, int64_t dim = -1, bool descending = false, bool stable = false);

struct SortResult {
  TensorView* values = nullptr;
  TensorView* indices = nullptr;
};
SortResult sort(TensorView* x, int64_t dim = -1, bool descending = false, bool stable = false);

using TopKResult = SortResult;
// The k largest (smallest) elements along dim and their positions, always in order, for both values of `sorted`. k is at most the extent;
// if the extent is not known here, the call checks it.
TopKResult topk(TensorView* x, Operand k, int64_t dim = -1, bool largest = true, bool sorted = true);

}  // namespace meshfuse
