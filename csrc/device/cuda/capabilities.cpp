#include "device/cuda/capabilities.h"

#include <fmt/ranges.h>

#include "device/cuda/driver/library.h"
#include "device/cuda/nvrtc/library.h"

namespace meshfuse {

CudaCapabilities cudaCapabilities() {
  CudaCapabilities c;
  const NvrtcLibrary& n = nvrtcLibrary();
  c.nvrtc = n.usable();
  c.nvrtcNote = n.usable() ? fmt::format("NVRTC {}.{} from {}", n.major, n.minor, n.name()) : n.reason();
  const DriverLibrary& d = driverLibrary();
  if (!d.usable()) {
    c.driverNote = d.reason();
    return c;
  }
  int version = 0;
  int count = 0;
  d.driverGetVersion(&version);
  d.deviceGetCount(&count);
  for (int i = 0; i < count; i++) {
    int major = 0;
    int minor = 0;
    d.deviceGetAttribute(&major, cuda::DeviceAttribute::ComputeCapabilityMajor, i);
    d.deviceGetAttribute(&minor, cuda::DeviceAttribute::ComputeCapabilityMinor, i);
    c.devices.push_back(fmt::format("sm_{}{}", major, minor));
  }
  c.driver = count > 0;
  const std::string found = count > 0 ? fmt::format(", {}", fmt::join(c.devices, ", ")) : " finds no device";
  c.driverNote = fmt::format("driver API {}.{}{}", version / 1000, version % 1000 / 10, found);
  return c;
}

// A driver loads kernels that were compiled for its major version of CUDA or an earlier one.
std::optional<std::string> refusalOfKernels() {
  const NvrtcLibrary& nvrtc = nvrtcLibrary();
  int version = 0;
  succeed(loadedDriver().driverGetVersion(&version), "cuDriverGetVersion", "the driver");
  const int major = version / 1000;
  if (nvrtc.major <= major) {
    return std::nullopt;
  }
  return fmt::format(
      "the driver has CUDA {}.{} and cannot load kernels that NVRTC {}.{} ({}) compiles; install a driver with CUDA {} "
      "or later, or NVRTC of CUDA {} in its place",
      major, version % 1000 / 10, nvrtc.major, nvrtc.minor, nvrtc.name(), nvrtc.major, major);
}

}  // namespace meshfuse
