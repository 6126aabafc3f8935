// The primary context of a GPU, and what the GPU is.
#pragma once

#include <cstdint>
#include <string>

#include "device/cuda/api/driver.h"
#include "device/device_info.h"

namespace meshfuse {

class CudaContext {
 public:
  // DeviceError if there is no driver, or no GPU of that index.
  explicit CudaContext(int64_t index);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  int64_t index() const { return index_; }
  const std::string& name() const { return name_; }
  // Where it is in the machine, on the PCI bus.
  const std::string& place() const { return place_; }
  const std::string& architecture() const { return architecture_; }  // sm_80; sm_90a from 9.0 on
  int64_t lastCacheBytes() const { return lastCacheBytes_; }
  const GpuFacts& facts() const { return facts_; }
  int64_t sharedBytesOfABlock() const { return facts_.sharedBytesOfBlock; }
  cuda::Context context() const { return context_; }

 private:
  int64_t index_;
  std::string name_;
  cuda::DeviceNumber device_ = 0;
  cuda::Context context_ = nullptr;
  std::string place_;
  std::string architecture_;
  int64_t lastCacheBytes_ = 0;
  GpuFacts facts_;
};

// The context is current on this thread while the scope lives.
class CurrentContext {
 public:
  explicit CurrentContext(const CudaContext& context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

}  // namespace meshfuse
