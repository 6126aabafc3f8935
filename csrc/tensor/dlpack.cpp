#include "tensor/dlpack.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <ranges>

#include "base/error.h"
#include "base/limits.h"
#include "tensor/device_memory.h"

namespace meshfuse {

namespace {

using dlpack::ManagedTensor;

constexpr int32_t kCpu = 1;
constexpr int32_t kCuda = 2;

void expectGpuFor(std::optional<GpuStream> stream, DeviceId device) {
  check(!stream || device.kind == DeviceId::Kind::Cuda,
        "[dlpack] a stream was given for a tensor on {}, which has none; leave it out", device.toString());
}

// Later work of the device begins when the work of the stream so far has ended; without a stream, waits for all work of the device.
void orderAfter(DeviceId device, std::optional<GpuStream> stream) {
  if (stream) {
    registeredDevice(device).orderAfter(*stream);
  } else if (device != DeviceId::cpu()) {
    registeredDevice(device).settle();
  }
}

// Calls order(), which puts the end of a tensor's use in order with other work. Where that fails, for example because the stream of the other
// library is gone, waits for all work of the device.
template <class Order>
void endUse(DeviceId device, const Order& order) noexcept {
  try {
    try {
      order();
    } catch (const std::exception&) {
      registeredDevice(device).settle();
    }
  } catch (const std::exception&) {  // the device is gone, and the memory with it
  }
}

// A handle of another library.
struct Imported {
  ManagedTensor* handle;
  std::optional<GpuStream> stream;  // of the producer
  bool isUsed = false;

  ~Imported() {
    if (isUsed && handle->tensor.device.type == kCuda) {  // calls that have returned may still use the memory
      const DeviceId device = DeviceId::cuda(handle->tensor.device.id);
      endUse(device,
             [&] { stream ? registeredDevice(device).orderBefore(*stream) : registeredDevice(device).settle(); });
    }
    if (handle->deleter != nullptr) {
      handle->deleter(handle);
    }
  }
};

// The context of a handle made here: it keeps the storage alive, and the arrays that the handle points to.
struct Exported {
  Tensor tensor;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  std::optional<GpuStream> stream;  // of the receiver
  ManagedTensor handle;
};

std::optional<DataType> typeOf(const dlpack::DlDataType& t) {
  const auto* row = std::ranges::find_if(kDataTypes, [&](const DataTypeInfo& row) {
    return row.dlpackCode == t.code && bitWidth(row.type) == t.bits && t.lanes == 1;
  });
  return row == kDataTypes.end() ? std::nullopt : std::optional(row->type);
}

}  // namespace

ManagedTensor* toDlpack(const Tensor& tensor, std::optional<GpuStream> stream) {
  check(tensor.defined(), "[dlpack] the tensor is undefined; give one with data");
  const DeviceId device = tensor.device();
  check(device.kind != DeviceId::Kind::Extension,
        "[dlpack] the tensor is on {}, expected a CPU or a GPU; copy it with to()", device.toString());
  expectGpuFor(stream, device);
  if (stream) {
    registeredDevice(device).orderBefore(*stream);
  }
  auto* out = new Exported{tensor, {}, {}, stream, {}};
  out->sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  out->strides.assign(tensor.strides().begin(), tensor.strides().end());
  out->handle.tensor = {
      .data = tensor.data(),
      .device = {device.kind == DeviceId::Kind::Cuda ? kCuda : kCpu, static_cast<int32_t>(device.index)},
      .ndim = static_cast<int32_t>(tensor.dim()),
      .dtype = {info(tensor.dtype()).dlpackCode, static_cast<uint8_t>(bitWidth(tensor.dtype())), 1},
      .shape = out->sizes.data(),
      .strides = out->strides.data(),
      .byteOffset = 0};
  out->handle.context = out;
  out->handle.deleter = [](ManagedTensor* handle) {
    const std::unique_ptr<Exported> exported(static_cast<Exported*>(handle->context));
    const DeviceId device = exported->tensor.device();
    endUse(device, [&] { orderAfter(device, exported->stream); });  // the memory is freed after the receiver's work
  };
  return &out->handle;
}

Tensor fromDlpack(ManagedTensor* handle, std::optional<GpuStream> stream) {
  check(handle != nullptr, "[dlpack] the handle is null, expected a tensor");
  const auto owner = std::make_shared<Imported>(handle, stream);
  const dlpack::DlTensor& t = handle->tensor;
  check(
      t.device.type == kCpu || t.device.type == kCuda,
      "[dlpack] the tensor is on a device of type {}, expected 1, a CPU, or 2, a GPU of CUDA; copy it to one of these",
      t.device.type);
  const DeviceId device = t.device.type == kCpu ? DeviceId::cpu() : DeviceId::cuda(t.device.id);
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
  expectGpuFor(stream, device);
  orderAfter(device, stream);
  owner->isUsed = true;
  return Tensor::wrap(data, std::move(sizes), std::move(strides), *type, owner, device);
}

}  // namespace meshfuse
