#include "device/cuda/cublaslt/library.h"

#include "device/cuda/cublaslt/algorithms.h"
#include "device/device_failure.h"
#include "device/device_info.h"

namespace meshfuse {

CublasLtLibrary::CublasLtLibrary()
    : VendorLibrary({"libcublasLt.so.13", "libcublasLt.so.12"}, {"/usr/local/cuda/lib64/libcublasLt.so"}) {
  MESHFUSE_CUBLASLT_CALLS(MESHFUSE_VENDOR_FIND);
}

const CublasLtLibrary& cublasLtLibrary() {
  static const CublasLtLibrary library;
  return library;
}

void throwCublasLtError(cublaslt::Status status, std::string_view call, std::string_view purpose) {
  const char* const text = cublasLtLibrary().statusString(status);
  throw DeviceFailure(fmt::format("[cuda] {} of {} failed: {} ({})", call, purpose, text != nullptr ? text : "unknown",
                                  static_cast<int>(status)));
}

int64_t advisedWorkspaceBytes(std::string_view architecture) {
  const int number = architectureNumber(architecture).value_or(0);
  return number < 90 ? 4 << 20 : number < 120 ? 32 << 20 : 12 << 20;
}

CublasLtHandle::CublasLtHandle(const DeviceInfo& device, DiskCache* cache)
    : mostWorkspaceBytes_(device.mostWorkspaceBytes) {
  const CublasLtLibrary& library = cublasLtLibrary();
  deviceCheck(library.usable(), "[cuda] cuBLASLt cannot be used: {}", library.reason());
  algorithms_ = std::make_unique<ProductAlgorithms>(device, cache);
  succeed(library.create(&handle_), "cublasLtCreate", "the device");
}

CublasLtHandle::~CublasLtHandle() { cublasLtLibrary().destroy(handle_); }

}  // namespace meshfuse
