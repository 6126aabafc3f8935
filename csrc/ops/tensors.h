// Tensors and scalars without definition, which become inputs of a fusion. Each function writes into the Fusion& given first, or into
// that of the FusionGuard (UserError without one).
//
//   makeSymbolicTensor(2)            extents i0, i1; strides known at run time
//   makeContigTensor(2)              the same, contiguous
//   makeConcreteTensor({8, 1})       constant extents; the 1 is a broadcast dim; strides known at run time
//   makeContigConcreteTensor({8, 16})  the same, contiguous
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

TensorView* makeSymbolicTensor(Fusion& fusion, int64_t ndims, DataType dtype = DataType::Float);
// A template, so that {2} is a shape.
template <std::integral T>
TensorView* makeSymbolicTensor(T ndims, DataType dtype = DataType::Float) {
  return makeSymbolicTensor(*FusionGuard::current(), ndims, dtype);
}
// Symbolic extents, except that each 1 in `shape` is a broadcast dim.
TensorView* makeSymbolicTensor(const std::vector<int64_t>& shape, DataType dtype = DataType::Float);
TensorView* makeContigTensor(int64_t ndims, DataType dtype = DataType::Float);
TensorView* makeContigTensor(Fusion& fusion, int64_t ndims, DataType dtype = DataType::Float);
// -1 is a symbolic extent. UserError on other negative ones.
TensorView* makeConcreteTensor(const std::vector<int64_t>& shape, DataType dtype = DataType::Float);
TensorView* makeConcreteTensor(Fusion& fusion, const std::vector<int64_t>& shape, DataType dtype = DataType::Float);
TensorView* makeContigConcreteTensor(const std::vector<int64_t>& shape, DataType dtype = DataType::Float);
TensorView* makeContigConcreteTensor(Fusion& fusion, const std::vector<int64_t>& shape,
                                     DataType dtype = DataType::Float);

// Builds any input step by step. Without a shape all extents are symbolic.
class TensorViewBuilder {
 public:
  TensorViewBuilder& ndims(int64_t n);
  TensorViewBuilder& dtype(DataType dtype);
  // One flag for each dim in logical order, or one for all: whether the dim's stride is the product of the extents inside it.
  TensorViewBuilder& contiguity(std::vector<bool> flags);
  TensorViewBuilder& contiguity(bool all);
  // -1 is a symbolic extent.
  TensorViewBuilder& shape(std::vector<int64_t> extents);
  TensorViewBuilder& shape(const std::vector<Val*>& extents);
  // Dims whose elements all have one address (stride 0), although their extent is not 1.
  TensorViewBuilder& expanded(std::vector<bool> flags);
  // Rank of each dim in memory: 0 is the innermost.
  TensorViewBuilder& strideOrder(std::vector<int64_t> order);
  // UserError on lists of different lengths.
  TensorView* build() const;
  TensorView* build(Fusion& fusion) const;

 private:
  std::optional<int64_t> ndims_;
  DataType dtype_ = DataType::Float;
  std::vector<bool> contiguity_;
  std::optional<bool> allContiguous_;
  std::optional<std::vector<IntExpr>> extents_;
  std::vector<bool> expanded_;
  std::vector<int64_t> strideOrder_;
};

// Scalars: a constant from a value, an input known at run time from a type.
class IrBuilder {
 public:
  template <class T, class Value>
  requires std::is_same_v<T, Val>
  static Val* create(Value value) { return create<T>(*FusionGuard::current(), value); }
  template <class T, class Value>
  requires std::is_same_v<T, Val>
  static Val* create(Fusion& fusion, Value value) {
    if constexpr (std::is_same_v<Value, DataType>) {
      return fusion.inputScalar(value);
    } else if constexpr (std::is_same_v<Value, bool>) {
      return fusion.scalar(value);
    } else if constexpr (std::is_same_v<Value, IntExpr>) {
      return fusion.intScalar(value);
    } else if constexpr (std::is_integral_v<Value>) {
      return fusion.scalar(static_cast<int64_t>(value));
    } else {
      return fusion.scalar(static_cast<double>(value));
    }
  }
};

}  // namespace meshfuse
