// The part of the CUDA driver API that meshfuse calls, declared as drivers of CUDA 12 and 13 export it. tests/device/cuda/api compares the
// declarations with cuda.h and with libcuda.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshfuse::cuda {

enum class Result : int { Success = 0, InvalidValue = 1, OutOfMemory = 2, NotInitialized = 3, NoDevice = 100 };
enum class DeviceAttribute : int { ComputeCapabilityMajor = 75, ComputeCapabilityMinor = 76 };
enum class FunctionAttribute : int { MaxDynamicSharedBytes = 8 };
enum class LaunchAttributeId : int { ClusterDimension = 4 };

using DeviceNumber = int;
using DevicePointer = unsigned long long;
using Context = struct ContextObject*;
using Module = struct ModuleObject*;
using Function = struct FunctionObject*;
using Stream = struct StreamObject*;

struct LaunchAttribute {
  LaunchAttributeId id;
  alignas(8) union {
    char pad[64];
    struct {
      unsigned x, y, z;
    } clusterDim;
  } value;
};

struct LaunchConfig {
  unsigned gridX, gridY, gridZ;     // in blocks
  unsigned blockX, blockY, blockZ;  // in threads
  unsigned sharedBytes;             // dynamic, of a block
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attributeCount;
};

// call(member, exported function, result, parameters). Exported names are those to which the macros of cuda.h expand: without _v2 the library
// has versions with 32-bit sizes.
#define MESHFUSE_CUDA_DRIVER_CALLS(call)                                                                       \
  call(init, cuInit, cuda::Result, (unsigned flags));                                                          \
  call(driverGetVersion, cuDriverGetVersion, cuda::Result, (int* version));                                    \
  call(getErrorString, cuGetErrorString, cuda::Result, (cuda::Result result, const char** text));              \
  call(deviceGetCount, cuDeviceGetCount, cuda::Result, (int* count));                                          \
  call(deviceGet, cuDeviceGet, cuda::Result, (cuda::DeviceNumber * device, int index));                        \
  call(deviceGetAttribute, cuDeviceGetAttribute, cuda::Result,                                                 \
       (int* value, cuda::DeviceAttribute attribute, cuda::DeviceNumber device));                              \
  call(primaryContextRetain, cuDevicePrimaryCtxRetain, cuda::Result,                                           \
       (cuda::Context * context, cuda::DeviceNumber device));                                                  \
  call(primaryContextRelease, cuDevicePrimaryCtxRelease_v2, cuda::Result, (cuda::DeviceNumber device));        \
  call(contextPush, cuCtxPushCurrent_v2, cuda::Result, (cuda::Context context));                               \
  call(contextPop, cuCtxPopCurrent_v2, cuda::Result, (cuda::Context * context));                               \
  call(contextSynchronize, cuCtxSynchronize, cuda::Result, ());                                                \
  call(memoryAllocate, cuMemAlloc_v2, cuda::Result, (cuda::DevicePointer * memory, size_t bytes));             \
  call(memoryFree, cuMemFree_v2, cuda::Result, (cuda::DevicePointer memory));                                  \
  call(copyToDevice, cuMemcpyHtoD_v2, cuda::Result, (cuda::DevicePointer to, const void* from, size_t bytes)); \
  call(copyToHost, cuMemcpyDtoH_v2, cuda::Result, (void* to, cuda::DevicePointer from, size_t bytes));         \
  call(moduleLoadData, cuModuleLoadData, cuda::Result, (cuda::Module * module, const void* image));            \
  call(moduleUnload, cuModuleUnload, cuda::Result, (cuda::Module module));                                     \
  call(moduleGetFunction, cuModuleGetFunction, cuda::Result,                                                   \
       (cuda::Function * function, cuda::Module module, const char* name));                                    \
  call(functionSetAttribute, cuFuncSetAttribute, cuda::Result,                                                 \
       (cuda::Function function, cuda::FunctionAttribute attribute, int value));                               \
  call(launchKernel, cuLaunchKernelEx, cuda::Result,                                                           \
       (const cuda::LaunchConfig* config, cuda::Function function, void** parameters, void** extra))

}  // namespace meshfuse::cuda
