// Reductions that NCCL does not have as meshfuse defines them: memory for the operands of all ranks, and the kernels that combine them.
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

  // Whether combine() for this combination and so many bytes of operands makes no call that may wait for the device.
  [[nodiscard]] bool isReady(const Combination& of, int64_t bytes) const;
  // Compiles and allocates what is missing.
  void prepare(const Combination& of, int64_t bytes);
  // The memory of the operands; prepare() may take other memory.
  const std::shared_ptr<void>& operands() const { return memory_; }
  // The operands, each `count` elements, `distance` elements apart, to `result`: work of the stream. The context is current.
  void combine(const Combination& of, int64_t count, int64_t distance, std::byte* result, cuda::Stream stream) const;

 private:
  Device& device_;
  const LaunchOnStream launch_;
  std::map<Combination, std::shared_ptr<const Kernel>> kernels_;
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
};

}  // namespace meshfuse
