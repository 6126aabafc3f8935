// Tensors made of no tensor: constants, sequences and random numbers.
//
// A shape is given as integers or as Int scalars of the fusion (shape(x), size(x, k)). Each factory writes into the fusion of
// its scalars, of the FusionGuard, or of the Fusion& given first.
//
// Random numbers depend on seed, offset, the op's number in the fusion (its ordinal, counted at definition) and the element's
// position in the whole tensor, never on sharding, segmentation or schedule:
//   Philox4x32 with 10 rounds (Salmon et al., 2011), key = (low, high) 32 bits of the seed,
//   counter = (low, high of the row-major position in the whole tensor, low, high of offset + ordinal), words w0..w3
//   uniform   Float: (w0 >> 8) * 2^-24; Double: ((w0 | w1 << 32) >> 11) * 2^-53; in [0, 1)
//   normal    sqrt(-2 log(u)) * cos(2 pi v) with u = 1 - (the uniform of w0, or of w0, w1 for Double), in (0, 1],
//             v = the uniform of w1 (Double: of w2, w3)
// Half and BFloat16 are cast from Float. seed and offset: Int scalars or constants, 0 if not given.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "ops/operand.h"

namespace meshfuse {

// Extents of a tensor to be made: integers, Int scalars or expressions. UserError on a negative or non-integer one.
class Shape {
 public:
  Shape() = default;  // 0-d
  Shape(const std::vector<int64_t>& extents);                // NOLINT
  Shape(const std::vector<Val*>& extents);                   // NOLINT
  Shape(std::vector<IntExpr> extents) : extents_(std::move(extents)) {}  // NOLINT
  template <std::integral T>
  Shape(std::initializer_list<T> extents) : Shape(std::vector<int64_t>(extents.begin(), extents.end())) {}  // NOLINT
  Shape(std::initializer_list<Val*> extents) : Shape(std::vector<Val*>(extents)) {}  // NOLINT
  Shape(std::initializer_list<IntExpr> extents) : extents_(extents) {}             // NOLINT
  const std::vector<IntExpr>& extents() const { return extents_; }
  // The fusion of the scalars given, else that of the guard.
  Fusion& fusion() const;

 private:
  std::vector<IntExpr> extents_;
  Fusion* fusion_ = nullptr;
};

TensorView* full(const Shape& shape, Operand value, DataType dtype);
TensorView* full(Fusion& fusion, const Shape& shape, Operand value, DataType dtype);
// Of x's shape; the type of x unless given.
TensorView* full_like(TensorView* x, Operand value, std::optional<DataType> dtype = std::nullopt);
TensorView* zeros(const Shape& shape, DataType dtype);
TensorView* zeros_like(TensorView* x);
TensorView* ones(const Shape& shape, DataType dtype);
TensorView* ones_like(TensorView* x);
// 1-D: start + i * step for i in [0, length).
TensorView* iota(Operand length, Operand start = 0, Operand step = 1, DataType dtype = DataType::Int);
TensorView* iota(Fusion& fusion, Operand length, Operand start = 0, Operand step = 1, DataType dtype = DataType::Int);
// 1-D: start, start + step, .. up to but without end. step is a constant other than 0; floating arguments are constants.
TensorView* arange(Operand end, DataType dtype = DataType::Int);
TensorView* arange(Operand start, Operand end, DataType dtype = DataType::Int);
TensorView* arange(Operand start, Operand end, Operand step, DataType dtype = DataType::Int);
// 2-D: 1 on the diagonal, else 0.
TensorView* eye(Operand size, DataType dtype);
TensorView* eye(Operand rows, Operand columns, DataType dtype);

// Uniform in [0, 1); normal with mean 0 and deviation 1. dtype is a floating type.
TensorView* rand(const Shape& shape, DataType dtype, Operand seed = 0, Operand offset = 0);
TensorView* randn(const Shape& shape, DataType dtype, Operand seed = 0, Operand offset = 0);
TensorView* rand_like(TensorView* x, Operand seed = 0, Operand offset = 0);
TensorView* randn_like(TensorView* x, Operand seed = 0, Operand offset = 0);
// low + (high - low) * rand; mean + deviation * randn.
TensorView* uniform(const Shape& shape, Operand low, Operand high, DataType dtype, Operand seed = 0, Operand offset = 0);
TensorView* normal(const Shape& shape, Operand mean, Operand deviation, DataType dtype, Operand seed = 0, Operand offset = 0);

struct ForwardDropoutResult {
  TensorView* output = nullptr;
  TensorView* mask = nullptr;  // Bool: true where kept
};
// Each element is dropped with probability `drop`, the others are divided by 1 - drop. drop == 1 drops all.
ForwardDropoutResult dropout(TensorView* x, Operand drop);
// Each element is kept with probability `keep` and multiplied by `scale`.
ForwardDropoutResult dropout(TensorView* x, Operand keep, Operand scale);
// dy * mask * scale
TensorView* dropout_backward(TensorView* dy, TensorView* mask, Operand scale);

}  // namespace meshfuse
