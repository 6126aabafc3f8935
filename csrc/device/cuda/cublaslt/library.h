// The loaded cuBLASLt of the process, and its handles.
#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "device/cuda/api/cublaslt.h"
#include "device/cuda/api/vendor_library.h"

namespace meshfuse {

struct CublasLtLibrary : VendorLibrary {
  CublasLtLibrary();

  MESHFUSE_CUBLASLT_CALLS(MESHFUSE_VENDOR_MEMBER);
};

// Loaded at the first call; may be unusable.
const CublasLtLibrary& cublasLtLibrary();

[[noreturn]] void throwCublasLtError(cublaslt::Status status, std::string_view call, std::string_view purpose);

// DeviceError unless the call succeeded, with the call, its purpose, and the library's message and number.
template <class... Args>
void succeed(cublaslt::Status status, std::string_view call, fmt::format_string<Args...> purpose, Args&&... args) {
  if (status != cublaslt::Status::Success) [[unlikely]] {
    throwCublasLtError(status, call, fmt::format(purpose, std::forward<Args>(args)...));
  }
}

// The state of the library for one device. Threads may use it at the same time.
class CublasLtHandle {
 public:
  CublasLtHandle();  // DeviceError if the library is not usable
  ~CublasLtHandle();
  CublasLtHandle(const CublasLtHandle&) = delete;
  CublasLtHandle& operator=(const CublasLtHandle&) = delete;
  cublaslt::Handle get() const { return handle_; }

 private:
  cublaslt::Handle handle_ = nullptr;
};

}  // namespace meshfuse
