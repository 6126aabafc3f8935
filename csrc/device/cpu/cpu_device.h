// The CPU of this process as a device: kernels by LLVM, matrix products by oneDNN, a pool of threads.
#pragma once

#include <memory>

#include "device/open.h"

namespace meshfuse {

[[nodiscard]] std::shared_ptr<Device> makeCpuDevice(const DeviceOptions& options);

}  // namespace meshfuse
