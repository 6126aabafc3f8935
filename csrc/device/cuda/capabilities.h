// The parts of CUDA that this process can use, and the reason why each other part is unavailable.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace meshfuse {

struct CudaCapabilities {
  bool nvrtc = false;                // kernels compile
  std::string nvrtcNote;             // library and version, or why not
  bool driver = false;               // a driver finds a GPU; whether it loads kernels: refusalOfKernels()
  std::string driverNote;            // library and version, or why not
  std::vector<std::string> devices;  // architecture of each, such as sm_90
};

[[nodiscard]] CudaCapabilities cudaCapabilities();

// Why the driver does not load what NVRTC compiles; nothing if it does. DeviceError without a driver.
[[nodiscard]] std::optional<std::string> refusalOfKernels();

}  // namespace meshfuse
