// A GPU of this machine.
#pragma once

#include <cstdint>
#include <memory>

namespace meshfuse {

class Device;

// cuda:`index`. DeviceError with the reason if there is no driver, no such GPU, or no NVRTC, or if the driver does not load what NVRTC
// compiles.
[[nodiscard]] std::shared_ptr<Device> makeCudaDevice(int64_t index);

}  // namespace meshfuse
