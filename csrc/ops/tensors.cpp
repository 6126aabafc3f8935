#include "ops/tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "base/limits.h"
#include "base/ranges.h"
#include "ops/shape_rules.h"

namespace meshfuse {

TensorView* makeSymbolicTensor(Fusion& fusion, int64_t ndims, DataType dtype) {
  return TensorViewBuilder().ndims(ndims).dtype(dtype).contiguity(false).build(fusion);
}

TensorView* makeSymbolicTensor(const std::vector<int64_t>& shape, DataType dtype) {
  std::vector<int64_t> extents = shape;
  std::ranges::replace_if(
      extents, [](int64_t extent) { return extent != 1; }, -1);
  return TensorViewBuilder().shape(extents).dtype(dtype).contiguity(false).build();
}

TensorView* makeContigTensor(Fusion& fusion, int64_t ndims, DataType dtype) {
  return TensorViewBuilder().ndims(ndims).dtype(dtype).contiguity(true).build(fusion);
}

TensorView* makeContigTensor(int64_t ndims, DataType dtype) {
  return makeContigTensor(*FusionGuard::current(), ndims, dtype);
}

TensorView* makeConcreteTensor(Fusion& fusion, const std::vector<int64_t>& shape, DataType dtype) {
  return TensorViewBuilder().shape(shape).dtype(dtype).contiguity(false).build(fusion);
}

TensorView* makeConcreteTensor(const std::vector<int64_t>& shape, DataType dtype) {
  return makeConcreteTensor(*FusionGuard::current(), shape, dtype);
}

TensorView* makeContigConcreteTensor(Fusion& fusion, const std::vector<int64_t>& shape, DataType dtype) {
  return TensorViewBuilder().shape(shape).dtype(dtype).contiguity(true).build(fusion);
}

TensorView* makeContigConcreteTensor(const std::vector<int64_t>& shape, DataType dtype) {
  return makeContigConcreteTensor(*FusionGuard::current(), shape, dtype);
}

TensorViewBuilder& TensorViewBuilder::ndims(int64_t n) {
  check(n >= 0 && n <= kMostDims, "[TensorViewBuilder] ndims is {}, expected 0 to {}", n, kMostDims);
  ndims_ = n;
  return *this;
}

TensorViewBuilder& TensorViewBuilder::dtype(DataType dtype) {
  dtype_ = dtype;
  return *this;
}

TensorViewBuilder& TensorViewBuilder::contiguity(std::vector<bool> flags) {
  contiguity_ = std::move(flags);
  allContiguous_.reset();
  return *this;
}

TensorViewBuilder& TensorViewBuilder::contiguity(bool all) {
  contiguity_.clear();
  allContiguous_ = all;
  return *this;
}

TensorViewBuilder& TensorViewBuilder::shape(std::vector<int64_t> extents) {
  for (int64_t extent : extents) {
    check(extent >= -1, "[TensorViewBuilder] extent {}, expected 0 or more, or -1 for a symbolic one", extent);
  }
  extents_.emplace(extents.begin(), extents.end());
  return *this;
}

TensorViewBuilder& TensorViewBuilder::shape(const std::vector<Val*>& extents) {
  extents_.emplace();
  for (const Val* extent : extents) {
    check(extent != nullptr && !extent->isTensor() && extent->dtype() == DataType::Int,
          "[TensorViewBuilder] an extent is a tensor, null or not Int, expected an Int scalar");
    extents_->push_back(extent->intExpr());
  }
  return *this;
}

TensorViewBuilder& TensorViewBuilder::expanded(std::vector<bool> flags) {
  expanded_ = std::move(flags);
  return *this;
}

TensorViewBuilder& TensorViewBuilder::strideOrder(std::vector<int64_t> order) {
  strideOrder_ = std::move(order);
  return *this;
}

TensorView* TensorViewBuilder::build() const { return build(*FusionGuard::current()); }

TensorView* TensorViewBuilder::build(Fusion& fusion) const {
  std::vector<IntExpr> extents = extents_.value_or(std::vector<IntExpr>(ndims_.value_or(0), IntExpr(-1)));
  size_t rank = extents.size();
  check(!ndims_ || static_cast<size_t>(*ndims_) == rank,
        "[TensorViewBuilder] ndims is {}, but the shape has {} extents; leave out ndims", ndims_.value_or(0), rank);
  auto checkLength = [&](std::string_view what, size_t length) {
    check(length == 0 || length == rank, "[TensorViewBuilder] {} has {} entries, expected one for each dim, here {}",
          what, length, rank);
  };
  checkLength("contiguity", contiguity_.size());
  checkLength("expanded", expanded_.size());
  checkLength("strideOrder", strideOrder_.size());

  const auto dims = mapped(extents, [&](const IntExpr& extent) {
    return dimOf(extent.isConst(-1) ? fusion.freshSymbol({.lower = 0}) : extent);
  });
  TensorView* tv = fusion.tensor(dtype_, dims);
  std::vector<bool> flags = contiguity_.empty() ? std::vector<bool>(rank, allContiguous_.value_or(true)) : contiguity_;
  for (int64_t k = 0; k < std::ssize(expanded_); k++) {
    flags[k] = flags[k] && !expanded_[k];
  }
  if (strideOrder_.empty()) {
    tv->setContiguity(flags);
    return tv;
  }
  std::vector<int64_t> sorted = strideOrder_;
  std::ranges::sort(sorted);
  check(std::ranges::equal(sorted, indices(sorted)),
        "[TensorViewBuilder] strideOrder is [{}], expected each of 0 to {} once", fmt::join(strideOrder_, ", "),
        rank - 1);
  std::vector<IterDomain*> logical = tv->noReductions();
  std::vector<IterDomain*> inMemory(rank);
  std::vector<bool> flagsInMemory(rank);
  for (size_t k = 0; k < rank; k++) {
    const int64_t place = std::ssize(strideOrder_) - 1 - strideOrder_[k];
    inMemory[place] = logical[k];
    flagsInMemory[place] = flags[k];
  }
  tv->setAllocationDomain(inMemory, flagsInMemory);
  return tv;
}

}  // namespace meshfuse
