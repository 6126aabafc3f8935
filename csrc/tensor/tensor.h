// Tensor: a strided, reference-counted array on one device.
//
// Copying a Tensor shares its storage. Sizes and strides are in elements; strides may be 0 (expanded), and the array need not be
// contiguous. A rank's shard of a sharded tensor is a Tensor with local sizes.
//
// A tensor of another device than the CPU may be viewed, copied and passed to a program of this device. Functions that read or write
// elements copy them from or to the device; data_as() refuses, because the host cannot access the memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/device_memory.h"
#include "tensor/dtype.h"

namespace meshfuse {

// Elements in memory, borrowed: the memory and layout of a tensor.
struct StridedElements {
  void* data = nullptr;
  DataType dtype = DataType::Float;
  std::span<const int64_t> sizes;
  std::span<const int64_t> strides;  // elements

  bool isContiguous() const;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage, sizes {}
  // Contiguous, uninitialised, 64-byte aligned; on the CPU from the pooled allocator. UserError on negative sizes. This function and those
  // below, except wrap(), make tensors of the default device where no device is given.
  static Tensor empty(std::vector<int64_t> sizes, DataType dtype, DeviceId device = defaultDevice());
  static Tensor zeros(std::vector<int64_t> sizes, DataType dtype);
  static Tensor full(std::vector<int64_t> sizes, DataType dtype, double value);
  // A view of memory of `device` that `owner` keeps alive, or the caller if `owner` is null. UserError if the memory is not of that device;
  // on other devices than the CPU, also if the address is not aligned to the elements.
  static Tensor wrap(void* data, std::vector<int64_t> sizes, std::vector<int64_t> strides, DataType dtype,
                     std::shared_ptr<void> owner = nullptr, DeviceId device = DeviceId::cpu());
  // Contiguous copies of the given values, converted to dtype. UserError unless there is one value for each element.
  static Tensor of(std::span<const double> values, std::vector<int64_t> sizes, DataType dtype = DataType::Float);
  static Tensor of(std::initializer_list<double> values, std::vector<int64_t> sizes, DataType dtype = DataType::Float);
  static Tensor scalar(double value, DataType dtype = DataType::Float);  // 0-d

  bool defined() const { return storage_ != nullptr || data_ != nullptr; }
  DataType dtype() const { return dtype_; }
  DeviceId device() const { return memory_ == nullptr ? DeviceId::cpu() : memory_->id(); }
  int64_t dim() const { return std::ssize(sizes_); }
  std::span<const int64_t> sizes() const { return sizes_; }
  std::span<const int64_t> strides() const { return strides_; }
  int64_t size(int64_t axis) const;  // counts from the end when negative
  int64_t numel() const;
  int64_t nbytes() const { return numel() * dataTypeSize(dtype_); }
  int64_t spannedBytes() const;         // from the first element to the end of the last
  void* data() const { return data_; }  // an address of the device
  // The elements, for the host. UserError if the tensor is on another device than the CPU: copy it with to().
  template <class T>
  T* data_as() const {
    if (memory_ != nullptr) [[unlikely]] {
      throwNotOnHost();
    }
    return static_cast<T*>(data_);
  }
  const std::shared_ptr<void>& storage() const { return storage_; }
  // This tensor, marked as a rank's part of a global tensor of the given sizes. If parts are uneven, the sizes of one part do not
  // determine the global sizes. Clones keep the mark, views do not. UserError unless there is one size for each dim and none is negative.
  Tensor withGlobalShape(std::vector<int64_t> sizes) const;
  std::span<const int64_t> globalShape() const {  // empty if not given
    return globalShape_ == nullptr ? std::span<const int64_t>() : std::span<const int64_t>(*globalShape_);
  }
  bool isContiguous() const { return elements().isContiguous(); }
  StridedElements elements() const { return {data_, dtype_, sizes_, strides_}; }

  // Views. UserError on bad arguments.
  Tensor view(std::vector<int64_t> sizes) const;  // contiguous tensors
  Tensor asStrided(std::vector<int64_t> sizes, std::vector<int64_t> strides,
                   int64_t offset = 0) const;  // offset: elements
  Tensor slice(int64_t axis, int64_t start, int64_t stop, int64_t step = 1) const;
  Tensor permute(const std::vector<int64_t>& order) const;  // order[new] = old
  Tensor transpose(int64_t a, int64_t b) const;
  Tensor expand(std::vector<int64_t> sizes) const;

  // Copies. Those of a tensor that is not on the CPU, and those between devices, go through host memory.
  Tensor contiguous() const;  // itself if contiguous
  Tensor clone() const;       // a contiguous copy on the same device
  // The elements in another type, converted as by castOp (ops/shape_ops.h). The tensor itself if it has the type.
  Tensor to(DataType dtype) const;
  Tensor to(DeviceId device) const;  // a copy on the device, itself if it is there; a copy to the CPU keeps the strides
  // Same sizes, any device; converts. A tensor of another device than the CPU that is not contiguous is read and written as a whole span:
  // nothing else may write between its elements meanwhile.
  void copyFrom(const Tensor& source);

  // Element access for tests and printing: slow. Position: one index for each dim. UserError on a position outside of the tensor, and if
  // item() is called for another number of elements than one.
  double at(std::span<const int64_t> position) const;
  double at(std::initializer_list<int64_t> position) const;
  void set(std::span<const int64_t> position, double value);
  double item() const;                   // of a one-element tensor
  std::vector<double> toVector() const;  // row-major

  std::string toString() const;  // Float[2, 3] with values when small

 private:
  Tensor(std::shared_ptr<void> storage, void* data, DataType dtype, std::vector<int64_t> sizes,
         std::vector<int64_t> strides, DeviceMemory* memory);
  [[noreturn]] void throwNotOnHost() const;
  Tensor onHost() const;  // the same elements with the same strides in host memory
  // A view of other sizes and strides, unchecked.
  Tensor strided(std::vector<int64_t> sizes, std::vector<int64_t> strides, int64_t offset = 0) const;

  std::shared_ptr<void> storage_;
  void* data_ = nullptr;
  DeviceMemory* memory_ = nullptr;  // null: the CPU
  DataType dtype_ = DataType::Float;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
  std::shared_ptr<const std::vector<int64_t>> globalShape_;
};

// Copies elements between arrays of the same sizes, and converts them. Allocates nothing up to 16 dims. The memory of both may overlap only
// if both are contiguous and have one type.
void copyElements(const StridedElements& to, const StridedElements& from);

// Strides of a contiguous array. With `order`: strides of an array without gaps whose dims lie in this order, outermost first.
[[nodiscard]] std::vector<int64_t> contiguousStrides(std::span<const int64_t> sizes);
[[nodiscard]] std::vector<int64_t> contiguousStrides(std::span<const int64_t> sizes, std::span<const int64_t> order);
// True if the strides of the dims do not increase in `order`. Dims of one element are ignored, and so are all dims of an array without
// elements.
[[nodiscard]] bool liesInOrder(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                               std::span<const int64_t> order);

// Reproducible values, the same on every machine: uniform in [low, high) (integers: in [low, high)), from a seed.
[[nodiscard]] Tensor randomTensor(std::vector<int64_t> sizes, DataType dtype, uint64_t seed, double low = -1,
                                  double high = 1);

// Raw element conversions: every element type to double or int64 and back.
[[nodiscard]] double loadElement(const void* address, DataType dtype);
[[nodiscard]] int64_t loadInteger(const void* address, DataType dtype);
void storeElement(void* address, DataType dtype, double value);
void storeInteger(void* address, DataType dtype, int64_t value);

}  // namespace meshfuse
