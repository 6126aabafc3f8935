// Runs launches of generated kernels on a device, in place of the emulator.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "simt/emulator.h"

namespace meshfuse {

// Copies the tensors of each launch to the device, runs the kernel of its program there, and copies back what it may write. Errors of the
// device, and bytes written around a tensor, are faults of the launch. Traffic is not counted.
[[nodiscard]] std::vector<simt::Result> runOnDevice(std::span<const simt::Launch> launches, Device& device);

}  // namespace meshfuse
