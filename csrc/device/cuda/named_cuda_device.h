// A GPU by the name of its architecture: programs are planned and NVRTC compiles kernels for it, nothing runs.
#pragma once

#include <memory>
#include <string_view>

namespace meshfuse {

class Device;

// UserError if `architecture` is no name such as sm_90a, or NVRTC does not know it. Without NVRTC, kernels are texts only.
[[nodiscard]] std::shared_ptr<Device> makeNamedCudaDevice(std::string_view architecture);

}  // namespace meshfuse
