// The kernels that combine the operands of reductions that NCCL does not have as meshfuse defines them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "device/cuda/api/driver.h"
#include "device/cuda/nccl/combine_program.h"

namespace meshfuse {

class Device;
class Kernel;

// Launches a kernel of the device with these slots as work of a stream.
using LaunchOnStream = void (*)(const Kernel& kernel, std::span<const uint64_t> slots, cuda::Stream stream);

class Combiner {
 public:
  // The device outlives it.
  Combiner(Device& device, LaunchOnStream launch) : device_(device), launch_(launch) {}

  // Whether prepare() has compiled its kernel.
  [[nodiscard]] bool isReady(const Combination& of) const { return kernels_.contains(of); }
  // May wait for the device.
  void prepare(const Combination& of);
  // The operands, each `count` elements, `distance` elements apart, to `result`: work of the stream. The context is current.
  void combine(const Combination& of, const std::byte* operands, int64_t count, int64_t distance, std::byte* result,
               cuda::Stream stream) const;

 private:
  Device& device_;
  const LaunchOnStream launch_;
  std::map<Combination, std::shared_ptr<const Kernel>> kernels_;
};

}  // namespace meshfuse
