// Loads cubins into the current CUDA context and launches their kernels, through the driver API, which is loaded at run time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace meshfuse {

// How a kernel is launched: a one-dimensional grid; see codegen/cuda/emit.h.
struct CudaLaunchShape {
  int64_t blocks = 1;
  int64_t threads = 32;
  int64_t cluster = 1;
  int64_t sharedBytes = 0;
};

// One kernel of one cubin. It belongs to the context that is current when it is created; DeviceError if there is no context.
class CudaKernel {
 public:
  // `sharedBytes`: the most dynamic shared memory that a launch will ask for.
  CudaKernel(std::string_view cubin, const std::string& entry, int64_t sharedBytes = 0);
  ~CudaKernel();
  CudaKernel(const CudaKernel&) = delete;
  CudaKernel& operator=(const CudaKernel&) = delete;

  // Asynchronous on `stream` (a CUstream; null is the default one). A grid without blocks does nothing. `slots` are
  // copied before the call returns.
  void launch(const CudaLaunchShape& shape, std::span<const uint64_t> slots, void* stream) const;

 private:
  void* module_ = nullptr;    // CUmodule
  void* function_ = nullptr;  // CUfunction
  std::string entry_;
};

}  // namespace meshfuse
