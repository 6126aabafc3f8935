// A stream of a GPU that belongs to the caller.
#pragma once

namespace meshfuse {

// A CUstream of CUDA's driver API, or a cudaStream_t of its runtime. Null: the default stream of the GPU.
struct GpuStream {
  void* handle = nullptr;
};

}  // namespace meshfuse
