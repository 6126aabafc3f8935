#include "device/cuda/nccl/library.h"

#include <string_view>

#include "base/environment.h"
#include "base/error.h"

namespace meshfuse {

namespace {

constexpr int kOldest = 21900;  // has all functions of the table

}  // namespace

NcclLibrary::NcclLibrary() : VendorLibrary({"libnccl.so.2"}, {"/usr/local/cuda/lib64/libnccl.so.2"}) {
  MESHFUSE_NCCL_CALLS(MESHFUSE_VENDOR_FIND);
  if (!usable()) {
    return;
  }
  int found = 0;
  if (version(&found) != nccl::Result::Success || found < kOldest) {
    refuse(fmt::format("NCCL {} is older than 2.19", found));
    return;
  }
  number = found;
}

const NcclLibrary& ncclLibrary() {
  static const NcclLibrary library;
  return library;
}

bool ncclRegistersMemory() { return environmentText("NCCL_LOCAL_REGISTER") != "0"; }

void throwNcclError(nccl::Result status, std::string_view call, std::string_view purpose) {
  const NcclLibrary& library = ncclLibrary();
  const char* const last = library.lastError(nullptr);
  const std::string_view details = last != nullptr ? last : "";
  throwDeviceError(fmt::format("[nccl] {} of {} failed: {} ({}){}{}; set NCCL_DEBUG=WARN and run again to see why",
                               call, purpose, library.errorString(status), static_cast<int>(status),
                               details.empty() ? "" : "; ", details));
}

}  // namespace meshfuse
