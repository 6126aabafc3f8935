// The loaded NVRTC and driver libraries of the process. Only for the sources of this folder: it names CUDA's types.
#pragma once

#include <cuda.h>
#include <fmt/core.h>
#include <nvrtc.h>

#include <string>
#include <string_view>
#include <utility>

#include "device/cuda/nvrtc/dynamic_library.h"

namespace meshfuse {

struct NvrtcLibrary {
  NvrtcLibrary();

  DynamicLibrary library;
  bool usable = false;
  std::string reason;  // why it is not usable
  int major = 0;
  int minor = 0;

  decltype(&nvrtcVersion) version = nullptr;
  decltype(&nvrtcCreateProgram) createProgram = nullptr;
  decltype(&nvrtcCompileProgram) compileProgram = nullptr;
  decltype(&nvrtcDestroyProgram) destroyProgram = nullptr;
  decltype(&nvrtcGetProgramLogSize) getProgramLogSize = nullptr;
  decltype(&nvrtcGetProgramLog) getProgramLog = nullptr;
  decltype(&nvrtcGetCUBINSize) getCubinSize = nullptr;
  decltype(&nvrtcGetCUBIN) getCubin = nullptr;
  decltype(&nvrtcGetPTXSize) getPtxSize = nullptr;
  decltype(&nvrtcGetPTX) getPtx = nullptr;
  decltype(&nvrtcGetErrorString) getErrorString = nullptr;
  decltype(&nvrtcGetNumSupportedArchs) countArchitectures = nullptr;
  decltype(&nvrtcGetSupportedArchs) listArchitectures = nullptr;
};

struct DriverLibrary {
  DriverLibrary();

  DynamicLibrary library;
  bool usable = false;
  std::string reason;

  decltype(&cuInit) init = nullptr;
  decltype(&cuDriverGetVersion) driverGetVersion = nullptr;
  decltype(&cuDeviceGetCount) deviceGetCount = nullptr;
  decltype(&cuDeviceGetAttribute) deviceGetAttribute = nullptr;
  decltype(&cuGetErrorString) getErrorString = nullptr;
  decltype(&cuModuleLoadData) moduleLoadData = nullptr;
  decltype(&cuModuleUnload) moduleUnload = nullptr;
  decltype(&cuModuleGetFunction) moduleGetFunction = nullptr;
  decltype(&cuFuncSetAttribute) funcSetAttribute = nullptr;
  decltype(&cuLaunchKernelEx) launchKernelEx = nullptr;
  decltype(&cuDeviceGet) deviceGet = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) primaryContextRetain = nullptr;
  decltype(&cuDevicePrimaryCtxRelease) primaryContextRelease = nullptr;
  decltype(&cuCtxPushCurrent) contextPush = nullptr;
  decltype(&cuCtxPopCurrent) contextPop = nullptr;
  decltype(&cuCtxSynchronize) contextSynchronize = nullptr;
  decltype(&cuMemAlloc) memoryAllocate = nullptr;
  decltype(&cuMemFree) memoryFree = nullptr;
  decltype(&cuMemcpyHtoD) copyToDevice = nullptr;
  decltype(&cuMemcpyDtoH) copyToHost = nullptr;
};

// Loaded at the first call.
NvrtcLibrary& nvrtcLibrary();
DriverLibrary& driverLibrary();

[[noreturn]] void throwDriverError(CUresult status, std::string_view call, std::string_view purpose);

// DeviceError unless the call succeeded, with the call, its purpose, and the driver's message and number.
template <class... Args>
void succeed(CUresult status, std::string_view call, fmt::format_string<Args...> purpose, Args&&... args) {
  if (status != CUDA_SUCCESS) [[unlikely]] {
    throwDriverError(status, call, fmt::format(purpose, std::forward<Args>(args)...));
  }
}

}  // namespace meshfuse
