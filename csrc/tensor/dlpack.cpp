#include "tensor/dlpack.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <ranges>

#include "base/error.h"
#include "base/limits.h"

namespace meshfuse {

namespace {

using dlpack::ManagedTensor;

constexpr int32_t kCpu = 1;

// The context of a handle made here: it keeps the storage alive, and the arrays that the handle points to.
struct Exported {
  Tensor tensor;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  ManagedTensor handle;
};

std::optional<DataType> typeOf(const dlpack::DlDataType& t) {
  const auto* row = std::ranges::find_if(kDataTypes, [&](const DataTypeInfo& row) {
    return row.dlpackCode == t.code && bitWidth(row.type) == t.bits && t.lanes == 1;
  });
  return row == kDataTypes.end() ? std::nullopt : std::optional(row->type);
}

}  // namespace

ManagedTensor* toDlpack(const Tensor& tensor) {
  check(tensor.defined(), "[dlpack] the tensor is undefined; give one with data");
  check(tensor.device() == DeviceId::cpu(), "[dlpack] the tensor is on {}, expected cpu; copy it with to()",
        tensor.device().toString());
  auto* out = new Exported{tensor, {}, {}, {}};
  out->sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  out->strides.assign(tensor.strides().begin(), tensor.strides().end());
  out->handle.tensor = {.data = tensor.data(),
                        .device = {kCpu, static_cast<int32_t>(tensor.device().index)},
                        .ndim = static_cast<int32_t>(tensor.dim()),
                        .dtype = {info(tensor.dtype()).dlpackCode, static_cast<uint8_t>(bitWidth(tensor.dtype())), 1},
                        .shape = out->sizes.data(),
                        .strides = out->strides.data(),
                        .byteOffset = 0};
  out->handle.context = out;
  out->handle.deleter = [](ManagedTensor* handle) { delete static_cast<Exported*>(handle->context); };
  return &out->handle;
}

Tensor fromDlpack(ManagedTensor* handle) {
  check(handle != nullptr, "[dlpack] the handle is null");
  std::shared_ptr<void> owner(handle, [](void* p) {
    auto* h = static_cast<ManagedTensor*>(p);
    if (h->deleter != nullptr) {
      h->deleter(h);
    }
  });
  const dlpack::DlTensor& t = handle->tensor;
  check(t.device.type == kCpu, "[dlpack] the tensor is on a device of type {}, expected 1, a CPU; copy it to the CPU",
        t.device.type);
  std::optional<DataType> type = typeOf(t.dtype);
  check(type.has_value(), "[dlpack] type code {} of {} bits and {} lanes is none of {}; cast it", t.dtype.code,
        t.dtype.bits, t.dtype.lanes, fmt::join(std::views::transform(kDataTypes, &DataTypeInfo::name), ", "));
  check(t.ndim >= 0 && t.ndim <= kMostDims && (t.ndim == 0 || t.shape != nullptr),
        "[dlpack] the tensor has {} dims{}, expected a shape of 0 to {}; reshape it", t.ndim,
        t.shape == nullptr ? " without a shape" : "", kMostDims);
  std::vector<int64_t> sizes(t.shape, t.shape + t.ndim);
  std::vector<int64_t> strides =
      t.strides == nullptr ? contiguousStrides(sizes) : std::vector<int64_t>(t.strides, t.strides + t.ndim);
  void* data = t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byteOffset;
  return Tensor::wrap(data, std::move(sizes), std::move(strides), *type, std::move(owner));
}

}  // namespace meshfuse
