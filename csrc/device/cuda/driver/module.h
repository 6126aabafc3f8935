// A kernel of a cubin, loaded into a context.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "device/cuda/api/driver.h"
#include "device/cuda/driver/context.h"

namespace meshfuse {

// How a kernel is launched: a one-dimensional grid; see codegen/cuda/emit.h.
struct CudaLaunchShape {
  int64_t blocks = 1;
  int64_t threads = 32;
  int64_t cluster = 1;
  int64_t sharedBytes = 0;
};

class CudaModule {
 public:
  // sharedBytes: the most dynamic shared memory that a launch will ask for. DeviceError if the driver does not take the cubin, the cubin has no
  // such kernel, or a block cannot have that much.
  CudaModule(const CudaContext& context, std::string_view cubin, const std::string& entry, int64_t sharedBytes);
  ~CudaModule();
  CudaModule(const CudaModule&) = delete;
  CudaModule& operator=(const CudaModule&) = delete;

  // Asynchronous, in a context that is current; threads may call it at the same time. A grid without blocks does nothing. `slots` are copied
  // before the call returns.
  void launch(const CudaLaunchShape& shape, std::span<const uint64_t> slots, cuda::Stream stream) const;
  // Later launches of the graph launch the kernel of this node so.
  void set(cuda::GraphExec graph, cuda::GraphNode node, const CudaLaunchShape& shape,
           std::span<const uint64_t> slots) const;

 private:
  void expectGrid(const CudaLaunchShape& shape) const;

  const CudaContext& context_;
  std::string entry_;
  cuda::Module module_ = nullptr;
  cuda::Function function_ = nullptr;
};

}  // namespace meshfuse
