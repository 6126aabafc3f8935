// A routine on a GPU.
#pragma once

#include <span>
#include <string>

#include "device/cuda/api/driver.h"
#include "device/device.h"

namespace meshfuse {

class CudaRoutine : public Routine {
 public:
  virtual const std::string& name() const = 0;  // "linear 64x128x512 of Half", for errors
  // Asynchronous, in the context that is current. operands: device addresses in the order of the op's operands; out: contiguous; out and
  // workspace: 64-byte aligned. Threads may call it at the same time.
  virtual void run(std::span<void* const> operands, void* out, void* workspace, cuda::Stream stream) const = 0;
};

}  // namespace meshfuse
