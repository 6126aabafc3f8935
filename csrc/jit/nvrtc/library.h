// The loaded NVRTC and driver libraries of the process. Only for the sources of this folder: it names CUDA's types.
#pragma once

#include <cuda.h>
#include <nvrtc.h>

#include <string>

#include "jit/nvrtc/dynamic_library.h"

namespace meshfuse {

struct NvrtcLibrary {
  NvrtcLibrary();

  DynamicLibrary library;
  bool usable = false;
  std::string reason;  // why it is not
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
};

// Loaded at the first call.
NvrtcLibrary& nvrtcLibrary();
DriverLibrary& driverLibrary();

}  // namespace meshfuse
