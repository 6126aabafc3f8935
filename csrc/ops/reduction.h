// Reductions over some dims of a tensor.
//
//   sum(x, {1})               [B, N] -> [B]          sum(x, {-1}, true)      [B, N] -> [B, 1]
//   sum(x, {})                all dims -> 0-d        mean(half, {0})         Float, accumulated in Float
//
// axes       count from the end when negative; {} is all dims; on a 0-d tensor 0 and -1 are allowed and change nothing
// keep_dim   the reduced dims stay, as broadcast dims of extent 1
// dtype      the type of the result, converted before reducing (16-bit: accumulated in Float and cast at the end).
//            Default: floating types stay, except that 16-bit types give Float; integers and Bool give Int in sums and products
// A dim of extent 0 gives the identity: 0, 1, -inf or the lowest integer, +inf or the highest, true (all), false (any).
// The result keeps the reduced dims, marked, in its logical domain. UserError `[op]` on a bad axis or type.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/operand.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

using Axes = std::vector<int64_t>;

TensorView* sum(TensorView* x, const Axes& axes, bool keep_dim = false, std::optional<DataType> dtype = std::nullopt);
TensorView* prod(TensorView* x, const Axes& axes, bool keep_dim = false, std::optional<DataType> dtype = std::nullopt);
// NaN if any element is. Bool tensors: any and all.
TensorView* max(TensorView* x, const Axes& axes, bool keep_dim = false, std::optional<DataType> dtype = std::nullopt);
TensorView* min(TensorView* x, const Axes& axes, bool keep_dim = false, std::optional<DataType> dtype = std::nullopt);
// sum / number of elements, in floating numbers; integers give Float; NaN without elements.
TensorView* mean(TensorView* x, const Axes& axes, bool keep_dim = false, std::optional<DataType> dtype = std::nullopt);
// Bool: whether any or all elements are nonzero (NaN is nonzero).
TensorView* any(TensorView* x, const Axes& axes, bool keep_dim = false);
TensorView* all(TensorView* x, const Axes& axes, bool keep_dim = false);
// Integers and Bool; the type stays.
TensorView* bitwise_and(TensorView* x, const Axes& axes, bool keep_dim = false);
TensorView* bitwise_or(TensorView* x, const Axes& axes, bool keep_dim = false);
TensorView* bitwise_xor(TensorView* x, const Axes& axes, bool keep_dim = false);
// x summed to `sizes`, as the gradient of a broadcast needs: leading dims that are missing, and dims whose size is 1, are
// summed. Reduced dims of size 1 stay. If a dim is summed, the type follows the rules of sum; otherwise x keeps its type. UserError if a
// size is neither 1 nor x's.
TensorView* sum_to(TensorView* x, const IntList& sizes);

// The primitive: reduces by `op` in x's type.
TensorView* reductionOp(ReduceOp op, TensorView* x, const Axes& axes, bool keep_dim = false);

}  // namespace meshfuse
