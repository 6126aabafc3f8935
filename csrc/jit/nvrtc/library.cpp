#include "jit/nvrtc/library.h"

#include <fmt/core.h>

#include <cstdlib>
#include <vector>

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

}  // namespace

NvrtcLibrary::NvrtcLibrary() : library(nvrtcNames()) {
  usable = library.loaded() && bind(library, "nvrtcVersion", version) &&
           bind(library, "nvrtcCreateProgram", createProgram) && bind(library, "nvrtcCompileProgram", compileProgram) &&
           bind(library, "nvrtcDestroyProgram", destroyProgram) &&
           bind(library, "nvrtcGetProgramLogSize", getProgramLogSize) &&
           bind(library, "nvrtcGetProgramLog", getProgramLog) && bind(library, "nvrtcGetCUBINSize", getCubinSize) &&
           bind(library, "nvrtcGetCUBIN", getCubin) && bind(library, "nvrtcGetPTXSize", getPtxSize) &&
           bind(library, "nvrtcGetPTX", getPtx) && bind(library, "nvrtcGetErrorString", getErrorString);
  if (!usable) {
    reason = library.reason();
    return;
  }
  version(&major, &minor);
}

DriverLibrary::DriverLibrary() : library(driverNames()) {
  usable = library.loaded() && bind(library, "cuInit", init) && bind(library, "cuDriverGetVersion", driverGetVersion) &&
           bind(library, "cuDeviceGetCount", deviceGetCount) &&
           bind(library, "cuDeviceGetAttribute", deviceGetAttribute) &&
           bind(library, "cuGetErrorString", getErrorString) && bind(library, "cuModuleLoadData", moduleLoadData) &&
           bind(library, "cuModuleUnload", moduleUnload) && bind(library, "cuModuleGetFunction", moduleGetFunction) &&
           bind(library, "cuFuncSetAttribute", funcSetAttribute) && bind(library, "cuLaunchKernelEx", launchKernelEx);
  if (!usable) {
    reason = library.reason();
    return;
  }
  CUresult status = init(0);
  if (status != CUDA_SUCCESS) {
    const char* text = nullptr;
    getErrorString(status, &text);
    usable = false;
    reason = fmt::format("cuInit: {} ({})", text != nullptr ? text : "unknown error", static_cast<int>(status));
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

}  // namespace meshfuse
