#include "device/cuda/driver/library.h"

#include "device/device_failure.h"

namespace meshfuse {

namespace {

std::string described(const DriverLibrary& d, cuda::Result status) {
  const char* text = nullptr;
  d.getErrorString(status, &text);
  return fmt::format("{} ({})", text != nullptr ? text : "unknown error", static_cast<int>(status));
}

}  // namespace

DriverLibrary::DriverLibrary() : VendorLibrary({"libcuda.so.1"}) {
  MESHFUSE_CUDA_DRIVER_CALLS(MESHFUSE_VENDOR_FIND);
  if (usable()) {
    const cuda::Result status = init(0);
    if (status != cuda::Result::Success) {
      refuse("cuInit: " + described(*this, status));
    }
  }
}

const DriverLibrary& driverLibrary() {
  static const DriverLibrary library;
  return library;
}

const DriverLibrary& loadedDriver() {
  const DriverLibrary& d = driverLibrary();
  deviceCheck(d.usable(), "[cuda] no device can be used: {}; CUDA devices need the NVIDIA driver", d.reason());
  return d;
}

void throwDriverError(cuda::Result status, std::string_view call, std::string_view purpose) {
  throw DeviceFailure(fmt::format("[cuda] {} of {} failed: {}", call, purpose, described(driverLibrary(), status)));
}

}  // namespace meshfuse
