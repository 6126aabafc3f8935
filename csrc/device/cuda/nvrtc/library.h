// The loaded NVRTC and driver libraries of the process.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "device/cuda/api/driver.h"
#include "device/cuda/api/nvrtc.h"
#include "device/cuda/api/vendor_library.h"

namespace meshfuse {

struct NvrtcLibrary : VendorLibrary {
  NvrtcLibrary();

  MESHFUSE_NVRTC_CALLS(MESHFUSE_VENDOR_MEMBER);
  int major = 0;
  int minor = 0;
};

struct DriverLibrary : VendorLibrary {
  DriverLibrary();

  MESHFUSE_CUDA_DRIVER_CALLS(MESHFUSE_VENDOR_MEMBER);
};

// Loaded at the first call.
NvrtcLibrary& nvrtcLibrary();
DriverLibrary& driverLibrary();

[[noreturn]] void throwDriverError(cuda::Result status, std::string_view call, std::string_view purpose);

// DeviceError unless the call succeeded, with the call, its purpose, and the driver's message and number.
template <class... Args>
void succeed(cuda::Result status, std::string_view call, fmt::format_string<Args...> purpose, Args&&... args) {
  if (status != cuda::Result::Success) [[unlikely]] {
    throwDriverError(status, call, fmt::format(purpose, std::forward<Args>(args)...));
  }
}

}  // namespace meshfuse
