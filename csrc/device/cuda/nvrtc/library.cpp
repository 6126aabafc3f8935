#include "device/cuda/nvrtc/library.h"

#include <fmt/core.h>

#include <vector>

#include "base/error.h"
#include "meshfuse_config.h"

namespace meshfuse {

namespace {

// NVRTC loads its builtins by name when it first compiles. They lie beside it, but are not found there in a process whose dlopen
// AddressSanitizer has replaced. A library that is already loaded is found in any process.
void loadBuiltins(const std::string& nvrtc, int major, int minor) {
  const size_t folder = nvrtc.rfind('/');
  if (folder != std::string::npos) {
    const std::string beside = fmt::format("{}/libnvrtc-builtins.so.{}.{}", nvrtc.substr(0, folder), major, minor);
    const DynamicLibrary builtins(std::vector<std::string>{beside});  // where it is not, NVRTC looks itself
  }
}

}  // namespace

NvrtcLibrary::NvrtcLibrary()
    : VendorLibrary({"libnvrtc.so.13", "libnvrtc.so.12"}, {kNvrtcHint, "/usr/local/cuda/lib64/libnvrtc.so"}) {
  MESHFUSE_NVRTC_CALLS(MESHFUSE_VENDOR_FIND);
  if (usable()) {
    version(&major, &minor);
    loadBuiltins(name(), major, minor);
  }
}

NvrtcLibrary& nvrtcLibrary() {
  static NvrtcLibrary library;
  return library;
}

}  // namespace meshfuse
