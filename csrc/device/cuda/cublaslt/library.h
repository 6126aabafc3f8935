// The loaded cuBLASLt of the process, and its handles.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "device/cuda/api/cublaslt.h"
#include "device/cuda/api/vendor_library.h"

namespace meshfuse {

class DiskCache;
class ProductAlgorithms;
struct DeviceInfo;

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

// The workspace that NVIDIA advises for the products of an architecture: the table of cublasSetWorkspace in the documentation of cuBLAS.
[[nodiscard]] int64_t advisedWorkspaceBytes(std::string_view architecture);

// The state of the library for one device. Threads may use it at the same time.
class CublasLtHandle {
 public:
  // DeviceError if the library is not usable. `cache` keeps the algorithms that it chooses; optional, outlives the handle.
  CublasLtHandle(const DeviceInfo& device, DiskCache* cache);
  ~CublasLtHandle();
  CublasLtHandle(const CublasLtHandle&) = delete;
  CublasLtHandle& operator=(const CublasLtHandle&) = delete;
  cublaslt::Handle get() const { return handle_; }
  int64_t mostWorkspaceBytes() const { return mostWorkspaceBytes_; }  // of a product
  ProductAlgorithms& algorithms() const { return *algorithms_; }

 private:
  cublaslt::Handle handle_ = nullptr;
  const int64_t mostWorkspaceBytes_;
  std::unique_ptr<ProductAlgorithms> algorithms_;
};

}  // namespace meshfuse
