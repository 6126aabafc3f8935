// Matrix products. Both operands have one type, any but Bool, and the result has it too; 16-bit elements accumulate in Float and are
// rounded once. The logical domain of the result ends in the contracted dim, marked as a reduction.
#pragma once

#include "ir/fusion.h"

namespace meshfuse {

// a [.., M, K] times b [.., K, N] gives [.., M, N]: leading dims are batches, aligned from the right, and broadcast dims of them
// stretch. A 1-D a is [1, K] and loses M, a 1-D b is [K, 1] and loses N, as in PyTorch.
// UserError: 0-d operands, types or inner extents that differ, batches that do not stretch.
TensorView* matmul(TensorView* a, TensorView* b);
// x [.., K] times the transpose of weight [N, K] gives [.., N]; weight [K] gives [..]. bias: [N] (0-d for a 1-D weight), or null.
// UserError: a 0-d x, a weight of more than two dims or none, types or inner extents that differ, a bias of another shape.
TensorView* linear(TensorView* x, TensorView* weight, TensorView* bias = nullptr);

}  // namespace meshfuse
