// The part of the CUDA driver API that meshfuse calls, declared as drivers of CUDA 12 and 13 export it. tests/device/cuda/api compares the
// declarations with cuda.h and with libcuda.
#pragma once

#include <cstddef>
#include <cstdint>

namespace meshfuse::cuda {

enum class Result : int {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NotInitialized = 3,
  DeviceUnavailable = 46,
  NoDevice = 100,
  InvalidDevice = 101,
  InvalidContext = 201,
  InvalidHandle = 400,
  NotFound = 500,
  NotReady = 600,
  LaunchFailed = 719,
  CaptureUnsupported = 900,
  CaptureInvalidated = 901,
  CaptureMerge = 902,
  CaptureUnmatched = 903,
  CaptureUnjoined = 904,
  CaptureIsolation = 905,
  CaptureImplicit = 906,
  CapturedEvent = 907,
  CaptureWrongThread = 908,
  GraphUpdateFailed = 910
};
enum class DeviceAttribute : int {
  Processors = 16,
  PciBus = 33,
  PciDevice = 34,
  MemoryKilohertz = 36,
  MemoryBits = 37,  // of its bus
  L2CacheBytes = 38,
  ThreadsOfAProcessor = 39,
  PciDomain = 50,
  ComputeCapabilityMajor = 75,
  ComputeCapabilityMinor = 76,
  SharedBytesOfAProcessor = 81,
  RegistersOfAProcessor = 82,
  MostSharedBytesOfABlock = 97
};
enum class FunctionAttribute : int { MaxDynamicSharedBytes = 8 };
enum class LaunchAttributeId : int { ClusterDimension = 4 };
enum class PoolAttribute : int { ReleaseThreshold = 4, UsedNow = 7, UsedMost = 8 };  // uint64_t each, in bytes
enum class AllocationType : int { Pinned = 1 };                                      // of a pool: of device memory
enum class LocationType : int { Device = 1 };
enum class AccessFlags : int { ReadWrite = 3 };
enum class PointerAttribute : int { MemoryType = 2, DeviceOrdinal = 9 };
enum class MemoryType : int { Host = 1, Device = 2 };
enum class CaptureMode : int { Global = 0, ThreadLocal = 1, Relaxed = 2 };
enum class CaptureStatus : int { None = 0, Active = 1, Invalidated = 2 };
inline constexpr unsigned kNonBlockingStream = 1;  // is not ordered with the default stream
inline constexpr unsigned kEventWithoutTiming = 2;
inline constexpr unsigned kExternalRecord = 1;  // of a captured stream: each launch of the graph records the event
inline constexpr unsigned kPortableMemory = 1;  // pinned in all contexts

using DeviceNumber = int;
using DevicePointer = unsigned long long;
using Context = struct ContextObject*;
using Module = struct ModuleObject*;
using Function = struct FunctionObject*;
using Stream = struct StreamObject*;
using Event = struct EventObject*;
using MemoryPool = struct MemoryPoolObject*;
using Graph = struct GraphObject*;
using GraphNode = struct GraphNodeObject*;
using GraphExec = struct GraphExecObject*;
using Kernel = struct KernelObject*;

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

struct Location {
  LocationType type;
  int id;
};

// Who may access the memory of a pool besides its device.
struct PoolAccess {
  Location location;
  AccessFlags flags;
};

struct PoolProperties {
  AllocationType type;
  int handleTypes;
  Location location;
  void* windowsSecurity;
  size_t mostBytes;  // 0: no limit
  unsigned short usage;
  unsigned char reserved[54];
};

struct KernelNodeParameters {
  Function function;
  unsigned gridX, gridY, gridZ;
  unsigned blockX, blockY, blockZ;
  unsigned sharedBytes;
  void** parameters;
  void** extra;
  Kernel kernel;    // if there is no function
  Context context;  // of the kernel
};

// call(member, exported function, result, parameters). Exported names are those to which the macros of cuda.h expand: without _v2 the library
// has versions with 32-bit sizes.
#define MESHFUSE_CUDA_DRIVER_CALLS(call)                                                                               \
  call(init, cuInit, cuda::Result, (unsigned flags));                                                                  \
  call(driverGetVersion, cuDriverGetVersion, cuda::Result, (int* version));                                            \
  call(getErrorString, cuGetErrorString, cuda::Result, (cuda::Result result, const char** text));                      \
  call(deviceGetCount, cuDeviceGetCount, cuda::Result, (int* count));                                                  \
  call(deviceGet, cuDeviceGet, cuda::Result, (cuda::DeviceNumber * device, int index));                                \
  call(deviceGetAttribute, cuDeviceGetAttribute, cuda::Result,                                                         \
       (int* value, cuda::DeviceAttribute attribute, cuda::DeviceNumber device));                                      \
  call(deviceCanAccessPeer, cuDeviceCanAccessPeer, cuda::Result,                                                       \
       (int* can, cuda::DeviceNumber device, cuda::DeviceNumber peer));                                                \
  call(primaryContextRetain, cuDevicePrimaryCtxRetain, cuda::Result,                                                   \
       (cuda::Context * context, cuda::DeviceNumber device));                                                          \
  call(primaryContextRelease, cuDevicePrimaryCtxRelease_v2, cuda::Result, (cuda::DeviceNumber device));                \
  call(contextPush, cuCtxPushCurrent_v2, cuda::Result, (cuda::Context context));                                       \
  call(contextPop, cuCtxPopCurrent_v2, cuda::Result, (cuda::Context * context));                                       \
  call(contextSynchronize, cuCtxSynchronize, cuda::Result, ());                                                        \
  call(memoryAllocate, cuMemAlloc_v2, cuda::Result, (cuda::DevicePointer * memory, size_t bytes));                     \
  call(memoryFree, cuMemFree_v2, cuda::Result, (cuda::DevicePointer memory));                                          \
  call(memoryInfo, cuMemGetInfo_v2, cuda::Result, (size_t * free, size_t * total));                                    \
  call(poolCreate, cuMemPoolCreate, cuda::Result, (cuda::MemoryPool * pool, const cuda::PoolProperties* properties));  \
  call(poolDestroy, cuMemPoolDestroy, cuda::Result, (cuda::MemoryPool pool));                                          \
  call(poolSetAttribute, cuMemPoolSetAttribute, cuda::Result,                                                          \
       (cuda::MemoryPool pool, cuda::PoolAttribute attribute, void* value));                                           \
  call(poolSetAccess, cuMemPoolSetAccess, cuda::Result,                                                                \
       (cuda::MemoryPool pool, const cuda::PoolAccess* accesses, size_t count));                                       \
  call(poolGetAttribute, cuMemPoolGetAttribute, cuda::Result,                                                          \
       (cuda::MemoryPool pool, cuda::PoolAttribute attribute, void* value));                                           \
  call(memoryAllocateAsync, cuMemAllocFromPoolAsync, cuda::Result,                                                     \
       (cuda::DevicePointer * memory, size_t bytes, cuda::MemoryPool pool, cuda::Stream stream));                      \
  call(memoryFreeAsync, cuMemFreeAsync, cuda::Result, (cuda::DevicePointer memory, cuda::Stream stream));              \
  call(pointerGetAttribute, cuPointerGetAttribute, cuda::Result,                                                       \
       (void* value, cuda::PointerAttribute attribute, cuda::DevicePointer pointer));                                  \
  call(pinnedAllocate, cuMemHostAlloc, cuda::Result, (void** memory, size_t bytes, unsigned flags));                   \
  call(pinnedFree, cuMemFreeHost, cuda::Result, (void* memory));                                                       \
  call(copyToDeviceAsync, cuMemcpyHtoDAsync_v2, cuda::Result,                                                          \
       (cuda::DevicePointer to, const void* from, size_t bytes, cuda::Stream stream));                                 \
  call(copyToHostAsync, cuMemcpyDtoHAsync_v2, cuda::Result,                                                            \
       (void* to, cuda::DevicePointer from, size_t bytes, cuda::Stream stream));                                       \
  call(copyOnDeviceAsync, cuMemcpyDtoDAsync_v2, cuda::Result,                                                          \
       (cuda::DevicePointer to, cuda::DevicePointer from, size_t bytes, cuda::Stream stream));                         \
  call(fillAsync, cuMemsetD8Async, cuda::Result,                                                                       \
       (cuda::DevicePointer to, unsigned char value, size_t bytes, cuda::Stream stream));                              \
  call(streamCreate, cuStreamCreate, cuda::Result, (cuda::Stream * stream, unsigned flags));                           \
  call(streamDestroy, cuStreamDestroy_v2, cuda::Result, (cuda::Stream stream));                                        \
  call(streamSynchronize, cuStreamSynchronize, cuda::Result, (cuda::Stream stream));                                   \
  call(streamQuery, cuStreamQuery, cuda::Result, (cuda::Stream stream));                                               \
  call(streamWaitEvent, cuStreamWaitEvent, cuda::Result, (cuda::Stream stream, cuda::Event event, unsigned flags));    \
  call(eventCreate, cuEventCreate, cuda::Result, (cuda::Event * event, unsigned flags));                               \
  call(eventDestroy, cuEventDestroy_v2, cuda::Result, (cuda::Event event));                                            \
  call(eventRecord, cuEventRecord, cuda::Result, (cuda::Event event, cuda::Stream stream));                            \
  call(eventRecordWithFlags, cuEventRecordWithFlags, cuda::Result,                                                     \
       (cuda::Event event, cuda::Stream stream, unsigned flags));                                                      \
  call(eventSynchronize, cuEventSynchronize, cuda::Result, (cuda::Event event));                                       \
  call(eventQuery, cuEventQuery, cuda::Result, (cuda::Event event));                                                   \
  call(eventElapsedTime, cuEventElapsedTime, cuda::Result, (float* milliseconds, cuda::Event begin, cuda::Event end)); \
  call(moduleLoadData, cuModuleLoadData, cuda::Result, (cuda::Module * module, const void* image));                    \
  call(moduleUnload, cuModuleUnload, cuda::Result, (cuda::Module module));                                             \
  call(moduleGetFunction, cuModuleGetFunction, cuda::Result,                                                           \
       (cuda::Function * function, cuda::Module module, const char* name));                                            \
  call(functionSetAttribute, cuFuncSetAttribute, cuda::Result,                                                         \
       (cuda::Function function, cuda::FunctionAttribute attribute, int value));                                       \
  call(launchKernel, cuLaunchKernelEx, cuda::Result,                                                                   \
       (const cuda::LaunchConfig* config, cuda::Function function, void** parameters, void** extra));                  \
  call(streamBeginCapture, cuStreamBeginCapture_v2, cuda::Result, (cuda::Stream stream, cuda::CaptureMode mode));      \
  call(streamEndCapture, cuStreamEndCapture, cuda::Result, (cuda::Stream stream, cuda::Graph * graph));                \
  call(streamGetCaptureInfo, cuStreamGetCaptureInfo_v2, cuda::Result,                                                  \
       (cuda::Stream stream, cuda::CaptureStatus * status, unsigned long long* id, cuda::Graph* graph,                 \
        const cuda::GraphNode** dependencies, size_t* count));                                                         \
  call(graphDestroy, cuGraphDestroy, cuda::Result, (cuda::Graph graph));                                               \
  call(graphInstantiate, cuGraphInstantiateWithFlags, cuda::Result,                                                    \
       (cuda::GraphExec * executable, cuda::Graph graph, unsigned long long flags));                                   \
  call(graphLaunch, cuGraphLaunch, cuda::Result, (cuda::GraphExec executable, cuda::Stream stream));                   \
  call(graphExecDestroy, cuGraphExecDestroy, cuda::Result, (cuda::GraphExec executable));                              \
  call(graphSetKernelNode, cuGraphExecKernelNodeSetParams_v2, cuda::Result,                                            \
       (cuda::GraphExec executable, cuda::GraphNode node, const cuda::KernelNodeParameters* parameters))

}  // namespace meshfuse::cuda
