// Tensors from and for other libraries, by the DLPack protocol (version 0.x: struct DLManagedTensor).
//
// The structs are our own, with DLPack's layout: https://dmlc.github.io/dlpack/latest/c_api.html. A pointer to a
// DLManagedTensor of any other library may be cast to ManagedTensor* and back.
//
// On a CPU no stream orders accesses: the producer's writes must be complete. On a GPU both sides name a stream, as the protocol of
// Python's __dlpack__ asks:
//
//   ManagedTensor* h = toDlpack(y, GpuStream{theirs});   // their work on this stream begins after meshfuse's; y is freed after it
//   Tensor x = fromDlpack(h, GpuStream{theirs});         // meshfuse's work begins after theirs on this stream
//
// The streams live as long as the handle. Without a stream, three operations wait until all work that any library of this process gave the
// GPU has ended: fromDlpack; the deleter of a handle from toDlpack; the destruction of the last Tensor of a handle given to fromDlpack.
// toDlpack without a stream does not wait: the receiver must. Later work of another library is not ordered with meshfuse's: it must have
// ended before a fusion reads or writes the tensor. While a stream is captured into a graph, neither toDlpack nor fromDlpack may be called.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/gpu_stream.h"
#include "tensor/tensor.h"

namespace meshfuse::dlpack {

struct DlDevice {
  int32_t type;  // 1: CPU, 2: CUDA
  int32_t id;
};

struct DlDataType {
  uint8_t code;  // 0: integer, 1: unsigned, 2: floating, 4: bfloat, 5: complex, 6: bool
  uint8_t bits;
  uint16_t lanes;
};

struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: contiguous
  uint64_t byteOffset;
};

struct ManagedTensor {
  DlTensor tensor;
  void* context;
  void (*deleter)(ManagedTensor*);
};

}  // namespace meshfuse::dlpack

namespace meshfuse {

// A new handle that shares the tensor's storage; the receiver calls its deleter once. `stream`: of the receiver, on which its work with the
// tensor runs; UserError for a tensor that is not on a GPU.
[[nodiscard]] dlpack::ManagedTensor* toDlpack(const Tensor& tensor, std::optional<GpuStream> stream = {});

// Takes ownership of the handle: its deleter runs when the last Tensor that shares the memory is destroyed, or before this throws.
// `stream`: of the producer, on which its work with the tensor ran. UserError on null, another device than a CPU or a GPU of CUDA, an address
// that is not on the device, a type that DataType lacks, more lanes than one, or a stream where there is no GPU.
[[nodiscard]] Tensor fromDlpack(dlpack::ManagedTensor* handle, std::optional<GpuStream> stream = {});

}  // namespace meshfuse
