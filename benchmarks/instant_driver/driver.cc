// A driver of one GPU whose calls return at once and do nothing: what remains of a call is the time of its caller.
#include <cstdint>
#include <cstdlib>

#include "device/cuda/api/driver.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace meshfuse {

namespace {

using cuda::Result;

char object;                        // which every handle names
cuda::GraphNode last = nullptr;     // of the graph that is captured
uint64_t nodes = 0;

template <class Handle>
Result give(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&object);
  return Result::Success;
}

Result giveMemory(cuda::DevicePointer* memory, size_t bytes) {
  constexpr size_t kAlignment = 256;
  *memory = reinterpret_cast<cuda::DevicePointer>(
      std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
  return Result::Success;
}

}  // namespace

extern "C" {

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return Result::Success;
}
Result cuGetErrorString(Result, const char** text) {
  *text = "an error";
  return Result::Success;
}
Result cuDeviceGetCount(int* count) {
  *count = 1;
  return Result::Success;
}
Result cuDeviceGet(cuda::DeviceNumber* device, int) {
  *device = 0;
  return Result::Success;
}
Result cuDeviceGetAttribute(int* value, cuda::DeviceAttribute attribute, cuda::DeviceNumber) {
  *value = attribute == cuda::DeviceAttribute::ComputeCapabilityMajor   ? 9
           : attribute == cuda::DeviceAttribute::ComputeCapabilityMinor ? 0
                                                                        : 1 << 16;
  return Result::Success;
}
Result cuDevicePrimaryCtxRetain(cuda::Context* context, cuda::DeviceNumber) { return give(context); }
Result cuMemPoolCreate(cuda::MemoryPool* pool, const cuda::PoolProperties*) { return give(pool); }
Result cuMemAllocFromPoolAsync(cuda::DevicePointer* memory, size_t bytes, cuda::MemoryPool, cuda::Stream) {
  return giveMemory(memory, bytes);
}
Result cuMemFreeAsync(cuda::DevicePointer memory, cuda::Stream) {
  std::free(reinterpret_cast<void*>(memory));
  return Result::Success;
}
Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  *memory = std::calloc(1, bytes);
  return Result::Success;
}
Result cuMemFreeHost(void* memory) {
  std::free(memory);
  return Result::Success;
}
Result cuStreamCreate(cuda::Stream* stream, unsigned) { return give(stream); }
Result cuEventCreate(cuda::Event* event, unsigned) { return give(event); }
Result cuModuleLoadData(cuda::Module* module, const void*) { return give(module); }
Result cuModuleGetFunction(cuda::Function* function, cuda::Module, const char*) { return give(function); }
Result cuLaunchKernelEx(const cuda::LaunchConfig*, cuda::Function, void**, void**) {
  last = reinterpret_cast<cuda::GraphNode>(++nodes);
  return Result::Success;
}
Result cuStreamGetCaptureInfo_v2(cuda::Stream, cuda::CaptureStatus* status, unsigned long long*, cuda::Graph* graph,
                                 const cuda::GraphNode** dependencies, size_t* count) {
  *status = cuda::CaptureStatus::Active;
  *dependencies = &last;
  *count = 1;
  return give(graph);
}
Result cuStreamEndCapture(cuda::Stream, cuda::Graph* graph) { return give(graph); }
Result cuGraphInstantiateWithFlags(cuda::GraphExec* executable, cuda::Graph, unsigned long long) {
  return give(executable);
}

}  // extern "C"

}  // namespace meshfuse
