#include "tensor/dlpack.h"

#include <optional>

#include "base/error.h"

namespace meshfuse {

namespace {

using dlpack::ManagedTensor;

constexpr int32_t kCpu = 1;

struct TypeRow {
  DataType type;
  uint8_t code;
  uint8_t bits;
};
constexpr TypeRow kTypes[] = {
    {DataType::Double, 2, 64}, {DataType::Float, 2, 32}, {DataType::Half, 2, 16}, {DataType::BFloat16, 4, 16},
    {DataType::Int, 0, 64},    {DataType::Int32, 0, 32}, {DataType::Bool, 6, 8},
};

// What a handle of ours keeps: the shared storage and the arrays that its pointers point to.
struct Exported {
  Tensor tensor;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  ManagedTensor handle;
};

std::optional<DataType> typeOf(const dlpack::DlDataType& t) {
  for (const TypeRow& row : kTypes) {
    if (row.code == t.code && row.bits == t.bits && t.lanes == 1) {
      return row.type;
    }
  }
  return std::nullopt;
}

}  // namespace

ManagedTensor* toDlpack(const Tensor& tensor) {
  check(tensor.defined(), "[dlpack] the tensor is undefined; give one with data");
  auto* out = new Exported{tensor, {}, {}, {}};
  out->sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  out->strides.assign(tensor.strides().begin(), tensor.strides().end());
  const TypeRow* row = kTypes;
  while (row->type != tensor.dtype()) {
    row++;
  }
  out->handle.tensor = {.data = tensor.data(),
                        .device = {kCpu, tensor.device().index},
                        .ndim = tensor.dim(),
                        .dtype = {row->code, row->bits, 1},
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
  check(type.has_value(),
        "[dlpack] type code {} of {} bits and {} lanes is none of Double, Float, Half, BFloat16, Int, Int32, Bool; "
        "cast it",
        t.dtype.code, t.dtype.bits, t.dtype.lanes);
  std::vector<int64_t> sizes(t.shape, t.shape + t.ndim);
  std::vector<int64_t> strides =
      t.strides == nullptr ? contiguousStrides(sizes) : std::vector<int64_t>(t.strides, t.strides + t.ndim);
  void* data = t.data == nullptr ? nullptr : static_cast<char*>(t.data) + t.byteOffset;
  return Tensor::wrap(data, std::move(sizes), std::move(strides), *type, std::move(owner));
}

}  // namespace meshfuse
