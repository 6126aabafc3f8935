// The part of NVRTC that meshfuse calls, declared as NVRTC 12 and 13 export it. tests/device/cuda/api compares the declarations with
// nvrtc.h and with the library.
#pragma once

#include <cstddef>

namespace meshfuse::nvrtc {

enum class Result : int { Success = 0, OutOfMemory = 1, InvalidInput = 3, Compilation = 6 };
using Program = struct ProgramObject*;

// call(member, exported function, result, parameters)
#define MESHFUSE_NVRTC_CALLS(call)                                                                                 \
  call(version, nvrtcVersion, nvrtc::Result, (int* major, int* minor));                                            \
  call(createProgram, nvrtcCreateProgram, nvrtc::Result,                                                           \
       (nvrtc::Program * program, const char* text, const char* name, int headers, const char* const* headerTexts, \
        const char* const* headerNames));                                                                          \
  call(compileProgram, nvrtcCompileProgram, nvrtc::Result,                                                         \
       (nvrtc::Program program, int count, const char* const* options));                                           \
  call(destroyProgram, nvrtcDestroyProgram, nvrtc::Result, (nvrtc::Program * program));                            \
  call(getProgramLogSize, nvrtcGetProgramLogSize, nvrtc::Result, (nvrtc::Program program, size_t * bytes));        \
  call(getProgramLog, nvrtcGetProgramLog, nvrtc::Result, (nvrtc::Program program, char* log));                     \
  call(getCubinSize, nvrtcGetCUBINSize, nvrtc::Result, (nvrtc::Program program, size_t * bytes));                  \
  call(getCubin, nvrtcGetCUBIN, nvrtc::Result, (nvrtc::Program program, char* cubin));                             \
  call(getPtxSize, nvrtcGetPTXSize, nvrtc::Result, (nvrtc::Program program, size_t * bytes));                      \
  call(getPtx, nvrtcGetPTX, nvrtc::Result, (nvrtc::Program program, char* ptx));                                   \
  call(getErrorString, nvrtcGetErrorString, const char*, (nvrtc::Result result));                                  \
  call(countArchitectures, nvrtcGetNumSupportedArchs, nvrtc::Result, (int* count));                                \
  call(listArchitectures, nvrtcGetSupportedArchs, nvrtc::Result, (int* architectures))

}  // namespace meshfuse::nvrtc
