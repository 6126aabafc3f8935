// Tensors that tests pass to fusions, and inputs of these fusions.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "ir/fusion.h"
#include "ops/tensors.h"
#include "tensor/tensor.h"

namespace meshfuse {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Elements lie between -2 and 2.
inline Tensor random(std::vector<int64_t> sizes, uint64_t seed = 1, DataType type = DataType::Float) {
  return randomTensor(std::move(sizes), type, seed, -2, 2);
}

// An input with contiguous elements.
inline TensorView* input(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::Float) {
  TensorView* x = makeContigConcreteTensor(f, shape, type);
  f.addInput(x);
  return x;
}

// An input with arbitrary strides.
inline TensorView* stridedInput(Fusion& f, const std::vector<int64_t>& shape, DataType type = DataType::Float) {
  TensorView* x = makeConcreteTensor(f, shape, type);
  f.addInput(x);
  return x;
}

}  // namespace meshfuse
