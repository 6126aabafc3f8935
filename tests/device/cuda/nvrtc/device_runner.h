// Runs launches of generated kernels on a CUDA device, in place of the emulator.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/cuda/nvrtc/compiler.h"
#include "device/cuda/nvrtc/device_memory.h"
#include "simt/emulator.h"

namespace meshfuse {

// Compiles each text for the device, copies its tensors there, launches, and copies back what the kernel may write. What
// the driver reports, and bytes written around a tensor, are faults of the launch. Traffic is not counted.
[[nodiscard]] std::vector<simt::Result> runOnDevice(std::span<const simt::Launch> launches, const CudaDevice& device,
                                                    NvrtcCompiler& compiler);

}  // namespace meshfuse
