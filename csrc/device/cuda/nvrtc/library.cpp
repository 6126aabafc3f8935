#include "device/cuda/nvrtc/library.h"

#include <fmt/core.h>

#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "meshfuse_config.h"

namespace meshfuse {

namespace {

std::vector<std::string> nvrtcNames() {
  const char* own = std::getenv("MESHFUSE_NVRTC");
  return {own != nullptr ? own : "", "libnvrtc.so.13", "libnvrtc.so.12", kNvrtcHint,
          "/usr/local/cuda/lib64/libnvrtc.so"};
}

std::vector<std::string> driverNames() { return {"libcuda.so.1"}; }

// Fills a member of a library with its function; false where it is missing.
template <class Function>
bool bind(DynamicLibrary& library, const char* symbol, Function*& member) {
  member = library.find<Function>(symbol);
  return member != nullptr;
}

// NVRTC loads its builtins by name when it first compiles. They lie beside it, but are not found there in a process whose dlopen
// AddressSanitizer has replaced. A library that is already loaded is found in any process.
void loadBuiltins(const std::string& nvrtc, int major, int minor) {
  const size_t folder = nvrtc.rfind('/');
  if (folder != std::string::npos) {
    const std::string beside = fmt::format("{}/libnvrtc-builtins.so.{}.{}", nvrtc.substr(0, folder), major, minor);
    const DynamicLibrary builtins(std::vector<std::string>{beside});  // where it is not, NVRTC looks itself
  }
}

std::string describe(const DriverLibrary& d, CUresult status) {
  const char* text = nullptr;
  d.getErrorString(status, &text);
  return fmt::format("{} ({})", text != nullptr ? text : "unknown error", static_cast<int>(status));
}

}  // namespace

NvrtcLibrary::NvrtcLibrary() : library(nvrtcNames()) {
  usable = library.loaded() && bind(library, "nvrtcVersion", version) &&
           bind(library, "nvrtcCreateProgram", createProgram) && bind(library, "nvrtcCompileProgram", compileProgram) &&
           bind(library, "nvrtcDestroyProgram", destroyProgram) &&
           bind(library, "nvrtcGetProgramLogSize", getProgramLogSize) &&
           bind(library, "nvrtcGetProgramLog", getProgramLog) && bind(library, "nvrtcGetCUBINSize", getCubinSize) &&
           bind(library, "nvrtcGetCUBIN", getCubin) && bind(library, "nvrtcGetPTXSize", getPtxSize) &&
           bind(library, "nvrtcGetPTX", getPtx) && bind(library, "nvrtcGetErrorString", getErrorString) &&
           bind(library, "nvrtcGetNumSupportedArchs", countArchitectures) &&
           bind(library, "nvrtcGetSupportedArchs", listArchitectures);
  if (!usable) {
    reason = library.reason();
    return;
  }
  version(&major, &minor);
  loadBuiltins(library.name(), major, minor);
}

DriverLibrary::DriverLibrary() : library(driverNames()) {
  usable = library.loaded() && bind(library, "cuInit", init) && bind(library, "cuDriverGetVersion", driverGetVersion) &&
           bind(library, "cuDeviceGetCount", deviceGetCount) &&
           bind(library, "cuDeviceGetAttribute", deviceGetAttribute) &&
           bind(library, "cuGetErrorString", getErrorString) && bind(library, "cuModuleLoadData", moduleLoadData) &&
           bind(library, "cuModuleUnload", moduleUnload) && bind(library, "cuModuleGetFunction", moduleGetFunction) &&
           bind(library, "cuFuncSetAttribute", funcSetAttribute) && bind(library, "cuLaunchKernelEx", launchKernelEx) &&
           bind(library, "cuDeviceGet", deviceGet) && bind(library, "cuDevicePrimaryCtxRetain", primaryContextRetain) &&
           // The names that the macros of cuda.h expand to; without _v2 the library has versions with 32-bit sizes.
           bind(library, "cuDevicePrimaryCtxRelease_v2", primaryContextRelease) &&
           bind(library, "cuCtxPushCurrent_v2", contextPush) && bind(library, "cuCtxPopCurrent_v2", contextPop) &&
           bind(library, "cuCtxSynchronize", contextSynchronize) && bind(library, "cuMemAlloc_v2", memoryAllocate) &&
           bind(library, "cuMemFree_v2", memoryFree) && bind(library, "cuMemcpyHtoD_v2", copyToDevice) &&
           bind(library, "cuMemcpyDtoH_v2", copyToHost);
  if (!usable) {
    reason = library.reason();
    return;
  }
  CUresult status = init(0);
  if (status != CUDA_SUCCESS) {
    usable = false;
    reason = "cuInit: " + describe(*this, status);
  }
}

NvrtcLibrary& nvrtcLibrary() {
  static NvrtcLibrary library;
  return library;
}

DriverLibrary& driverLibrary() {
  static DriverLibrary library;
  return library;
}

void throwDriverError(CUresult status, std::string_view call, std::string_view purpose) {
  throwDeviceError(fmt::format("[cuda] {} of {} failed: {}", call, purpose, describe(driverLibrary(), status)));
}

}  // namespace meshfuse
