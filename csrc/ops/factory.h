// Tensors without tensor operands: constants, sequences and random numbers.
//
// A shape is given as integers or as Int scalars of the fusion (shape(x), size(x, k)); UserError on a negative extent. Each factory writes
// into the fusion of its scalars, of the FusionGuard, or of the Fusion& given first.
//
// Random numbers depend on seed, offset, the op's number in the fusion (its ordinal, counted at definition) and the element's
// position in the whole tensor, never on sharding, segmentation or schedule:
//   Philox4x32 with 10 rounds (Salmon et al., 2011), key = (low, high) 32 bits of the seed,
//   counter = (low, high of the row-major position in the whole tensor, low, high of offset + ordinal), words w0..w3
//   uniform   Float: (w0 >> 8) * 2^-24; Double: ((w0 | w1 << 32) >> 11) * 2^-53; in [0, 1)
//   normal    sqrt(-2 log(u)) * cos(2 pi v) with u = 1 - (the uniform of w0, or of w0, w1 for Double), in (0, 1],
//             v = the uniform of w1 (Double: of w2, w3)
// Numbers of 16-bit floating types are cast from Float; uniform ones that would be rounded to 1 become the largest number below 1. seed
// and offset: Int scalars or constants, 0 if not given. So each call of a fusion has the same numbers, unless a seed or an offset is an
// input of it.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/operand.h"

namespace meshfuse {

TensorView* full(const IntList& shape, Operand value, DataType dtype);
TensorView* full(Fusion& fusion, const IntList& shape, Operand value, DataType dtype);
// Of x's shape; the type of x unless given.
TensorView* full_like(TensorView* x, Operand value, std::optional<DataType> dtype = std::nullopt);
TensorView* zeros(const IntList& shape, DataType dtype);
TensorView* zeros_like(TensorView* x);
TensorView* ones(const IntList& shape, DataType dtype);
TensorView* ones_like(TensorView* x);
// 1-D: start + i * step for i in [0, length). UserError for Bool.
TensorView* iota(Operand length, Operand start = 0, Operand step = 1, DataType dtype = DataType::Int);
TensorView* iota(Fusion& fusion, Operand length, Operand start = 0, Operand step = 1, DataType dtype = DataType::Int);
// 1-D: start, start + step, .. up to but without end. step is a constant other than 0; if one of the three is floating, all three are
// constants. Else UserError.
TensorView* arange(Operand end, DataType dtype = DataType::Int);
TensorView* arange(Operand start, Operand end, DataType dtype = DataType::Int);
TensorView* arange(Operand start, Operand end, Operand step, DataType dtype = DataType::Int);
// 2-D: 1 on the diagonal, else 0.
TensorView* eye(Operand size, DataType dtype);
TensorView* eye(Operand rows, Operand columns, DataType dtype);

// What the numbers of a random op follow from, beside its ordinal and the positions of its elements.
struct RandomSource {
  Operand seed = 0;
  Operand offset = 0;
};

// Uniform in [0, 1); normal with mean 0 and deviation 1. dtype is a floating type, else UserError.
TensorView* rand(const IntList& shape, DataType dtype, Operand seed = 0, Operand offset = 0);
TensorView* randn(const IntList& shape, DataType dtype, Operand seed = 0, Operand offset = 0);
TensorView* rand_like(TensorView* x, Operand seed = 0, Operand offset = 0);
TensorView* randn_like(TensorView* x, Operand seed = 0, Operand offset = 0);
// low + (high - low) * rand; mean + deviation * randn.
TensorView* uniform(const IntList& shape, Operand low, Operand high, DataType dtype, Operand seed = 0,
                    Operand offset = 0);
TensorView* normal(const IntList& shape, Operand mean, Operand deviation, DataType dtype, Operand seed = 0,
                   Operand offset = 0);

struct ForwardDropoutResult {
  TensorView* output = nullptr;
  TensorView* mask = nullptr;  // Bool: true where kept
};
// Each element is dropped with probability `drop`, the others are divided by 1 - drop. drop == 1 drops all. Which elements, the uniform
// numbers of `source` say: without a seed or an offset that is an input, each call drops the same elements.
//
//   dropout(x, 0.1, RandomSource{seed, step})   // both Int inputs; step: the number of the call
//
// UserError if a constant probability is not in [0, 1].
ForwardDropoutResult dropout(TensorView* x, Operand drop, const RandomSource& source = {});
// Each element is kept with probability `keep` and multiplied by `scale`.
ForwardDropoutResult dropout(TensorView* x, Operand keep, Operand scale, const RandomSource& source = {});
// dy * mask * scale
TensorView* dropout_backward(TensorView* dy, TensorView* mask, Operand scale);

}  // namespace meshfuse
