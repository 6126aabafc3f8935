// The loaded NCCL of the process.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "device/cuda/api/nccl.h"
#include "device/cuda/api/vendor_library.h"

namespace meshfuse {

struct NcclLibrary : VendorLibrary {
  NcclLibrary();

  MESHFUSE_NCCL_CALLS(MESHFUSE_VENDOR_MEMBER);

  int number = 0;  // 22809 of 2.28.9; 0 if not usable
};

// Loaded at the first call; may be unusable, for example if it is older than 2.19.
const NcclLibrary& ncclLibrary();

// Whether NCCL registers memory, as the user has said: NCCL_LOCAL_REGISTER=0 forbids it.
[[nodiscard]] bool ncclRegistersMemory();

[[noreturn]] void throwNcclError(nccl::Result status, std::string_view call, std::string_view purpose);

inline bool hasFailed(nccl::Result status) {
  return status != nccl::Result::Success && status != nccl::Result::InProgress;
}

// DeviceError unless the call succeeded or is under way, with the call, its purpose, and the library's message and number.
template <class... Args>
void succeed(nccl::Result status, std::string_view call, fmt::format_string<Args...> purpose, Args&&... args) {
  if (hasFailed(status)) [[unlikely]] {
    throwNcclError(status, call, fmt::format(purpose, std::forward<Args>(args)...));
  }
}

}  // namespace meshfuse
