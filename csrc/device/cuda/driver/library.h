// The loaded driver of the process.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "device/cuda/api/driver.h"
#include "device/cuda/api/vendor_library.h"

namespace meshfuse {

struct DriverLibrary : VendorLibrary {
  DriverLibrary();

  MESHFUSE_CUDA_DRIVER_CALLS(MESHFUSE_VENDOR_MEMBER);
};

// Loaded at the first call; may be unusable.
const DriverLibrary& driverLibrary();
// DeviceError with the reason if there is no usable driver.
const DriverLibrary& loadedDriver();

[[noreturn]] void throwDriverError(cuda::Result status, std::string_view call, std::string_view purpose);

// DeviceError unless the call succeeded, with the call, its purpose, and the driver's message and number.
template <class... Args>
void succeed(cuda::Result status, std::string_view call, fmt::format_string<Args...> purpose, Args&&... args) {
  if (status != cuda::Result::Success) [[unlikely]] {
    throwDriverError(status, call, fmt::format(purpose, std::forward<Args>(args)...));
  }
}

}  // namespace meshfuse
