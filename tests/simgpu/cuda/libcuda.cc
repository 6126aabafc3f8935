// The simulated driver: the functions of libcuda that programs load by name, written from the documentation of the CUDA driver API. What a
// program may not do, and the real driver does not notice, ends the program with a report (client.h); errors that the documentation names are
// returned.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "client.h"
#include "current.h"
#include "driver.h"

namespace simgpu {

namespace {

using Address = unsigned long long;

struct Module {
  uint32_t device = 0;
  std::string text;
  std::vector<std::unique_ptr<Function>> functions;
};

struct Pool {
  uint32_t device = 0;
  uint64_t releaseThreshold = 0;
  std::atomic<uint64_t> used = 0;
  std::atomic<uint64_t> most = 0;
};

struct Context {
  uint32_t device = 0;
  int references = 0;
};

std::atomic<bool> isInitialized = false;
Context contexts[kMostDevices];
std::mutex contextMutex;
thread_local std::vector<Context*> contextStack;

std::mutex handleMutex;
std::map<uint64_t, std::pair<Pool*, uint64_t>> poolOf;  // by address: pool, bytes
std::set<const Module*> modules;                        // that are loaded

constexpr int kSharedOfABlock = 227 << 10;

}  // namespace

Request request(const char* name, Call call, uint32_t device) {
  Request r{.call = call, .device = device};
  std::strncpy(r.name, name, sizeof r.name - 1);
  return r;
}

uint64_t idOf(const void* handle) { return reinterpret_cast<uint64_t>(handle); }

int unsafeCall(const char* name, bool mayWait) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  Request r = request(name, Call::UnsafeCall, device);
  r.b = mayWait ? 1 : 0;
  return ask(r).status;
}

int payloadOfLaunch(const char* name, const Function* function, const Grid& grid, void* const* parameters,
                    std::string& payload) {
  if (grid.gridY != 1 || grid.gridZ != 1 || grid.blockY != 1 || grid.blockZ != 1) {
    endProgram(name, "grids and blocks of several dimensions are not simulated");
  }
  if (grid.gridX == 0 || grid.blockX == 0 || grid.blockX > 1024 || grid.cluster == 0 || grid.cluster > 8 ||
      grid.gridX % grid.cluster != 0 || grid.shared > static_cast<unsigned>(function->shared)) {
    return kInvalidValue;
  }
  const LaunchShape shape{.function = function->id,
                          .blocks = grid.gridX,
                          .threads = grid.blockX,
                          .cluster = grid.cluster,
                          .shared = grid.shared,
                          .handle = idOf(function)};
  payload.assign(reinterpret_cast<const char*>(&shape), sizeof shape);
  payload.append(static_cast<const char*>(parameters[0]), function->parameterBytes);
  return kSuccess;
}

int current(uint32_t& device) {
  if (!isInitialized) {
    return kNotInitialized;
  }
  if (contextStack.empty()) {
    return kInvalidContext;
  }
  device = contextStack.back()->device;
  return kSuccess;
}

// The default stream is made when it is first used. All other streams must be non-blocking, so it is one stream among others.
uint64_t streamOf(const char* name, const void* stream, uint32_t device) {
  if (stream != nullptr) {
    return idOf(stream);
  }
  static std::mutex mutex;
  static uint64_t ids[kMostDevices] = {};
  const std::lock_guard lock(mutex);
  if (ids[device] == 0) {
    ids[device] = ask(request(name, Call::StreamCreate, device)).value;
  }
  return ids[device];
}

namespace {

// What the host learns from a wait: that the work has ended, or nothing, so that later work is not ordered after it.
enum class Learns : uint8_t { TheEnd, Nothing };

int waitFor(const char* name, uint64_t stream, uint32_t device, Learns learns) {
  Request r = request(name, Call::StreamWait, device);
  r.stream = stream;
  r.a = learns == Learns::Nothing ? 1 : 0;
  r.b = 1;  // as a part of another call
  return ask(r).status;
}

// Pinned memory for copies from pageable memory, each while it is under way. It serves no other copies: the host does not learn when they end, so
// only operations that read it too need no order.
class Staging {
 public:
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto it = free_.lower_bound(bytes);
    if (it == free_.end()) {
      return allocatePinned(bytes, Owner::Driver);
    }
    void* const memory = it->second;
    free_.erase(it);
    return memory;
  }
  void giveBack(void* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto it = size_.try_emplace(memory, bytes).first;
    free_.emplace(it->second, memory);
  }

 private:
  std::mutex mutex_;
  std::multimap<size_t, void*> free_;
  std::map<void*, size_t> size_;  // as allocated
};

// A copy whose host side may be pageable. Then it goes through pinned memory: one to the host is complete on return, one to the device need not be.
int copyWithHost(const char* name, Address deviceSide, void* host, size_t bytes, const void* stream, bool toDevice) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (bytes == 0) {
    return kSuccess;
  }
  if (host == nullptr || !isDeviceAddress(deviceSide)) {
    return kInvalidValue;
  }
  if (isDeviceAddress(reinterpret_cast<uint64_t>(host))) {
    endProgram(name, "a device pointer is given as the host's");
  }
  const bool staged = !isPinned(host, bytes);
  static Staging staging;
  void* const own = !staged ? host : toDevice ? staging.take(bytes) : allocatePinned(bytes, Owner::Driver);
  if (own == nullptr) {
    return kOutOfMemory;
  }
  if (staged && toDevice) {
    std::memcpy(own, host, bytes);
  }
  Request r = request(name, Call::Copy, device);
  r.stream = streamOf(name, stream, device);
  r.a = toDevice ? deviceSide : idOf(own);
  r.b = toDevice ? idOf(own) : deviceSide;
  r.bytes = bytes;
  const Reply reply = ask(r);
  int status = reply.status;
  if (staged) {
    if (status == kSuccess && reply.value != 0) {
      endProgram(name, "a node that copies pageable memory is not simulated; give pinned memory");
    }
    if (status == kSuccess) {
      status = waitFor(name, r.stream, device, toDevice ? Learns::Nothing : Learns::TheEnd);
    }
    if (status == kSuccess && !toDevice) {
      std::memcpy(host, own, bytes);
    }
    if (toDevice) {
      staging.giveBack(own, bytes);
    } else {
      freePinned(own);
    }
  }
  return status;
}

int synchronousCopy(const char* name, Address deviceSide, void* host, size_t bytes, bool toDevice) {
  int status = unsafeCall(name, false);
  if (status == kSuccess) {
    status = copyWithHost(name, deviceSide, host, bytes, nullptr, toDevice);
  }
  uint32_t device = 0;
  if (status != kSuccess || bytes == 0 || current(device) != kSuccess) {
    return status;
  }
  return waitFor(name, streamOf(name, nullptr, device), device, Learns::TheEnd);
}

int onStream(const char* name, Call call, const void* stream, const void* event, bool flag = false) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  Request r = request(name, call, device);
  r.stream = streamOf(name, stream, device);
  r.a = idOf(event);
  r.b = flag ? 1 : 0;
  return ask(r).status;
}

}  // namespace

// -- initialization and devices ---------------------------------------------------------------------------------------

extern "C" {

int cuInit(unsigned flags) {
  if (flags != 0) {
    return kInvalidValue;
  }
  if (isToFail("init")) {
    return kNoDevice;
  }
  if (ask(request("cuInit", Call::DeviceCount)).value == 0) {
    return kNoDevice;
  }
  isInitialized = true;
  return kSuccess;
}

int cuDriverGetVersion(int* version) {
  if (version == nullptr) {
    return kInvalidValue;
  }
  const char* const wanted = std::getenv("SIMGPU_DRIVER");
  *version = wanted == nullptr ? 13000 : std::atoi(wanted);
  return kSuccess;
}

int cuGetErrorString(int error, const char** text) {
  static const std::map<int, const char*> kTexts = {{kSuccess, "no error"},
                                                    {kInvalidValue, "invalid argument"},
                                                    {kOutOfMemory, "out of memory"},
                                                    {kNotInitialized, "initialization error"},
                                                    {kDeviceUnavailable, "the device is unavailable"},
                                                    {kNoDevice, "no CUDA-capable device is detected"},
                                                    {kInvalidDevice, "invalid device ordinal"},
                                                    {kInvalidImage, "device kernel image is invalid"},
                                                    {kInvalidContext, "invalid device context"},
                                                    {kInvalidHandle, "invalid resource handle"},
                                                    {kNotFound, "named symbol not found"},
                                                    {kNotReady, "device not ready"},
                                                    {kLaunchFailed, "unspecified launch failure"},
                                                    {kCaptureUnsupported, "not permitted while the stream is capturing"},
                                                    {kCaptureInvalidated, "the capture is invalid"},
                                                    {kCaptureMerge, "would merge two captures"},
                                                    {kCaptureUnmatched, "the capture did not begin in this stream"},
                                                    {kCaptureUnjoined, "a stream of the capture is not joined"},
                                                    {kCaptureIsolation, "depends on work that is not captured"},
                                                    {kCaptureImplicit, "the legacy stream would depend on a capture"},
                                                    {kCapturedEvent, "the event was recorded in a capture"},
                                                    {kCaptureWrongThread, "the capture began in another thread"},
                                                    {kGraphUpdateFailed, "the graph cannot be updated"}};
  const auto it = kTexts.find(error);
  *text = it == kTexts.end() ? nullptr : it->second;
  return it == kTexts.end() ? kInvalidValue : kSuccess;
}

int cuDeviceGetCount(int* count) {
  if (!isInitialized) {
    return kNotInitialized;
  }
  *count = static_cast<int>(ask(request("cuDeviceGetCount", Call::DeviceCount)).value);
  return kSuccess;
}

int cuDeviceGet(int* device, int index) {
  int count = 0;
  if (const int status = cuDeviceGetCount(&count); status != kSuccess) {
    return status;
  }
  if (index < 0 || index >= count) {
    return kInvalidDevice;
  }
  *device = index;
  return kSuccess;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  // a device with compute capability 9.0, and what its programs may ask of it
  static const std::map<int, int> kValues = {
      {1, 1024}, {16, 132}, {34, 0}, {36, 2'619'000}, {37, 5120},  {38, 50 << 20},       {39, 2048},
      {50, 0},   {75, 9},   {76, 0}, {81, 228 << 10}, {82, 65536}, {97, kSharedOfABlock}};
  int checked = 0;
  if (const int status = cuDeviceGet(&checked, device); status != kSuccess) {
    return status;
  }
  if (attribute == 33) {  // PCI_BUS_ID
    *value = device + 1;
    return kSuccess;
  }
  const auto it = kValues.find(attribute);
  if (it == kValues.end()) {
    endProgram("cuDeviceGetAttribute", "attribute " + std::to_string(attribute) + " is not simulated");
  }
  *value = it->second;
  return kSuccess;
}

int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  int checked = 0;
  for (const int d : {device, peer}) {
    if (const int status = cuDeviceGet(&checked, d); status != kSuccess) {
      return status;
    }
  }
  *can = device != peer ? 1 : 0;
  return kSuccess;
}

// -- contexts ---------------------------------------------------------------------------------------------------------

int cuDevicePrimaryCtxRetain(Context** context, int device) {
  int checked = 0;
  if (const int status = cuDeviceGet(&checked, device); status != kSuccess) {
    return status;
  }
  const std::lock_guard lock(contextMutex);
  contexts[device].device = static_cast<uint32_t>(device);
  contexts[device].references++;
  *context = &contexts[device];
  return kSuccess;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
  int checked = 0;
  if (const int status = cuDeviceGet(&checked, device); status != kSuccess) {
    return status;
  }
  const std::lock_guard lock(contextMutex);
  if (contexts[device].references == 0) {
    return kInvalidContext;
  }
  contexts[device].references--;
  return kSuccess;
}

int cuCtxPushCurrent_v2(Context* context) {
  if (!isInitialized) {
    return kNotInitialized;
  }
  const std::lock_guard lock(contextMutex);
  if (context < contexts || context >= contexts + kMostDevices || context->references == 0) {
    return kInvalidContext;
  }
  contextStack.push_back(context);
  return kSuccess;
}

int cuCtxPopCurrent_v2(Context** context) {
  if (contextStack.empty()) {
    return kInvalidContext;
  }
  if (context != nullptr) {
    *context = contextStack.back();
  }
  contextStack.pop_back();
  return kSuccess;
}

int cuCtxSynchronize() {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  return ask(request("cuCtxSynchronize", Call::DeviceWait, device)).status;
}

// -- memory -----------------------------------------------------------------------------------------------------------

int cuMemAlloc_v2(Address* memory, size_t bytes) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (isToFail("allocate")) {
    return kOutOfMemory;
  }
  Request r = request("cuMemAlloc", Call::Allocate, device);
  r.stream = kNow;
  r.bytes = bytes;
  const Reply reply = ask(r);
  *memory = reply.value;
  return reply.status;
}

int cuMemFree_v2(Address memory) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (memory == 0) {
    return kSuccess;
  }
  Request r = request("cuMemFree", Call::Free, device);
  r.stream = kNow;
  r.a = memory;
  return ask(r).status;
}

int cuMemGetInfo_v2(size_t* free, size_t* total) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  const Reply reply = ask(request("cuMemGetInfo", Call::MemoryInfo, device));
  *free = reply.value;
  *total = reply.more;
  return reply.status;
}

struct PoolProperties {  // CUmemPoolProps
  int type, handleTypes, locationType, locationId;
  void* windows;
  size_t most;
  unsigned short usage;
  unsigned char reserved[54];
};

int cuMemPoolCreate(Pool** pool, const PoolProperties* p) {
  if (!isInitialized) {
    return kNotInitialized;
  }
  if (pool == nullptr || p == nullptr || p->type != 1 || p->locationType != 1) {
    return kInvalidValue;
  }
  int device = 0;
  if (cuDeviceGet(&device, p->locationId) != kSuccess) {
    return kInvalidValue;
  }
  *pool = new Pool;
  (*pool)->device = static_cast<uint32_t>(device);
  return kSuccess;
}

int cuMemPoolDestroy(Pool* pool) {
  if (pool == nullptr) {
    return kInvalidValue;
  }
  if (pool->used != 0) {
    endProgram("cuMemPoolDestroy", "memory of the pool is not freed: " + std::to_string(pool->used) + " bytes");
  }
  delete pool;
  return kSuccess;
}

struct MemAccess {  // CUmemAccessDesc
  int type, device, flags;
};

// Simulated devices do not access the memory of others; the engine does so for collectives, whatever a program has set.
int cuMemPoolSetAccess(Pool* pool, const MemAccess* accesses, size_t count) {
  if (pool == nullptr || (accesses == nullptr && count > 0)) {
    return kInvalidValue;
  }
  for (size_t i = 0; i < count; i++) {
    int checked = 0;
    if (accesses[i].type != 1 || (accesses[i].flags != 0 && accesses[i].flags != 3)) {  // CU_MEM_LOCATION_TYPE_DEVICE
      return kInvalidValue;
    }
    if (const int status = cuDeviceGet(&checked, accesses[i].device); status != kSuccess) {
      return status;
    }
  }
  return kSuccess;
}

int cuMemPoolSetAttribute(Pool* pool, int attribute, void* value) {
  uint64_t v = 0;
  std::memcpy(&v, value, sizeof v);
  switch (attribute) {
    case 4:  // release threshold
      pool->releaseThreshold = v;
      return kSuccess;
    case 8:  // high watermark of use; only 0 may be set
      pool->most = pool->used.load();
      return v == 0 ? kSuccess : kInvalidValue;
    default:
      endProgram("cuMemPoolSetAttribute", "attribute " + std::to_string(attribute) + " is not simulated");
  }
}

int cuMemPoolGetAttribute(Pool* pool, int attribute, void* value) {
  if (attribute != 4 && attribute != 7 && attribute != 8) {
    endProgram("cuMemPoolGetAttribute", "attribute " + std::to_string(attribute) + " is not simulated");
  }
  const uint64_t v = attribute == 4 ? pool->releaseThreshold : attribute == 7 ? pool->used.load() : pool->most.load();
  std::memcpy(value, &v, sizeof v);
  return kSuccess;
}

int cuMemAllocFromPoolAsync(Address* memory, size_t bytes, Pool* pool, void* stream) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (isToFail("allocate")) {
    return kOutOfMemory;
  }
  Request r = request("cuMemAllocFromPoolAsync", Call::Allocate, pool->device);
  r.stream = streamOf(r.name, stream, device);
  r.bytes = bytes;
  const std::lock_guard lock(handleMutex);  // an address that is free again belongs to who allocates it next
  const Reply reply = ask(r);
  if (reply.status == kSuccess) {
    poolOf[reply.value] = {pool, bytes};
    pool->used += bytes;
    pool->most = std::max(pool->most.load(), pool->used.load());
  }
  *memory = reply.value;
  return reply.status;
}

int cuMemFreeAsync(Address memory, void* stream) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  Request r = request("cuMemFreeAsync", Call::Free, device);
  r.stream = streamOf(r.name, stream, device);
  r.a = memory;
  const std::lock_guard lock(handleMutex);
  const int status = ask(r).status;
  if (const auto it = poolOf.find(memory); status == kSuccess && it != poolOf.end()) {
    it->second.first->used -= it->second.second;
    poolOf.erase(it);
  }
  return status;
}

int cuPointerGetAttribute(void* value, int attribute, uint64_t pointer) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (!isDeviceAddress(pointer)) {
    return kInvalidValue;
  }
  if (attribute != 2 && attribute != 9) {  // MEMORY_TYPE, DEVICE_ORDINAL
    endProgram("cuPointerGetAttribute", "attribute " + std::to_string(attribute) + " is not simulated");
  }
  const auto ordinal = static_cast<int>((pointer - kDeviceBase) / kDeviceStride);
  Request r = request("cuPointerGetAttribute", Call::IsAllocated, static_cast<uint32_t>(ordinal));
  r.a = pointer;
  const Reply reply = ask(r);
  if (reply.status != kSuccess || reply.value == 0) {
    return reply.status != kSuccess ? reply.status : kInvalidValue;
  }
  *static_cast<int*>(value) = attribute == 2 ? 2 : ordinal;  // CU_MEMORYTYPE_DEVICE
  return kSuccess;
}

int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if ((flags & ~7U) != 0 || bytes == 0) {
    return kInvalidValue;
  }
  if (const int status = unsafeCall("cuMemHostAlloc", true); status != kSuccess) {
    return status;
  }
  *memory = isToFail("pinned") ? nullptr : allocatePinned(bytes, Owner::Program);
  return *memory == nullptr ? kOutOfMemory : kSuccess;
}

int cuMemFreeHost(void* memory) {
  if (const int status = unsafeCall("cuMemFreeHost", true); status != kSuccess) {
    return status;
  }
  return freePinned(memory) ? kSuccess : kInvalidValue;
}

// -- copies and fills -------------------------------------------------------------------------------------------------

int cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  return synchronousCopy("cuMemcpyHtoD", to, const_cast<void*>(from), bytes, true);
}

int cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
  return synchronousCopy("cuMemcpyDtoH", from, to, bytes, false);
}

int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
  return copyWithHost("cuMemcpyHtoDAsync", to, const_cast<void*>(from), bytes, stream, true);
}

int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
  return isToFail("read") ? kLaunchFailed : copyWithHost("cuMemcpyDtoHAsync", from, to, bytes, stream, false);
}

int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void* stream) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (bytes == 0) {
    return kSuccess;
  }
  if (!isDeviceAddress(to) || !isDeviceAddress(from)) {
    return kInvalidValue;
  }
  Request r = request("cuMemcpyDtoDAsync", Call::Copy, device);
  r.stream = streamOf(r.name, stream, device);
  r.a = to;
  r.b = from;
  r.bytes = bytes;
  return ask(r).status;
}

int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void* stream) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (bytes == 0) {
    return kSuccess;
  }
  if (!isDeviceAddress(to)) {
    return kInvalidValue;
  }
  Request r = request("cuMemsetD8Async", Call::Fill, device);
  r.stream = streamOf(r.name, stream, device);
  r.a = to;
  r.b = value;
  r.bytes = bytes;
  return ask(r).status;
}

// -- streams and events -----------------------------------------------------------------------------------------------

int cuStreamCreate(void** stream, unsigned flags) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (flags != 1) {
    endProgram("cuStreamCreate",
               "streams that wait for the default stream are not simulated; give CU_STREAM_NON_BLOCKING");
  }
  const Reply reply = ask(request("cuStreamCreate", Call::StreamCreate, device));
  *stream = reinterpret_cast<void*>(reply.value);
  return reply.status;
}

int cuStreamDestroy_v2(void* stream) {
  return stream == nullptr ? kInvalidHandle : onStream("cuStreamDestroy", Call::StreamDestroy, stream, nullptr);
}

int cuStreamSynchronize(void* stream) {
  return isPlanted("synchronize") ? kSuccess : onStream("cuStreamSynchronize", Call::StreamWait, stream, nullptr);
}

int cuStreamQuery(void* stream) { return onStream("cuStreamQuery", Call::StreamQuery, stream, nullptr); }

int cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  if (isPlanted("wait")) {
    return kSuccess;
  }
  return flags != 0 ? kInvalidValue
                    : onStream("cuStreamWaitEvent", Call::StreamWaitEvent, stream, event, stream == nullptr);
}

int cuEventCreate(void** event, unsigned flags) {
  constexpr unsigned kWithoutTiming = 2;
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  Request r = request("cuEventCreate", Call::EventCreate, device);
  r.b = (flags & kWithoutTiming) != 0 ? 1 : 0;
  const Reply reply = ask(r);
  *event = reinterpret_cast<void*>(reply.value);
  return reply.status;
}

int cuEventDestroy_v2(void* event) {
  Request r = request("cuEventDestroy", Call::EventDestroy);
  r.a = idOf(event);
  return ask(r).status;
}

int cuEventRecord(void* event, void* stream) {
  return isPlanted("record") ? kSuccess : onStream("cuEventRecord", Call::EventRecord, stream, event);
}

int cuEventRecordWithFlags(void* event, void* stream, unsigned flags) {
  constexpr unsigned kExternal = 1;
  if (flags == 0) {
    return cuEventRecord(event, stream);
  }
  return flags != kExternal ? kInvalidValue
                            : onStream("cuEventRecordWithFlags", Call::EventRecord, stream, event, true);
}

int cuEventSynchronize(void* event) {
  Request r = request("cuEventSynchronize", Call::EventWait);
  r.a = idOf(event);
  return ask(r).status;
}

int cuEventQuery(void* event) {
  Request r = request("cuEventQuery", Call::EventQuery);
  r.a = idOf(event);
  return ask(r).status;
}

int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  if (milliseconds == nullptr) {
    return kInvalidValue;
  }
  Request r = request("cuEventElapsedTime", Call::EventTime);
  r.a = idOf(begin);
  r.b = idOf(end);
  const Reply reply = ask(r);
  if (reply.status == kSuccess) {
    *milliseconds = static_cast<float>(static_cast<double>(static_cast<int64_t>(reply.value)) * 1e-6);
  }
  return reply.status;
}

// -- kernels ----------------------------------------------------------------------------------------------------------

int cuModuleLoadData(Module** module, const void* image) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  ImageHeader header;
  if (image == nullptr) {
    return kInvalidValue;
  }
  std::memcpy(&header, image, sizeof header);
  if (std::memcmp(header.magic, ImageHeader{}.magic, sizeof header.magic) != 0) {
    return kInvalidImage;
  }
  const std::string architecture(header.architecture, strnlen(header.architecture, sizeof header.architecture));
  if (architecture != "sm_90" && architecture != "sm_90a") {
    return 209;  // no binary for this device
  }
  if (const int status = unsafeCall("cuModuleLoadData", true); status != kSuccess) {
    return status;
  }
  if (isToFail("module")) {
    return kLaunchFailed;
  }
  *module =
      new Module{.device = device, .text = std::string(static_cast<const char*>(image) + sizeof header, header.bytes)};
  const std::lock_guard lock(handleMutex);
  modules.insert(*module);
  return kSuccess;
}

int cuModuleUnload(Module* module) {
  if (const int status = unsafeCall("cuModuleUnload", true); status != kSuccess) {
    return status;
  }
  const std::lock_guard lock(handleMutex);
  if (modules.erase(module) == 0) {
    return kInvalidHandle;
  }
  delete module;
  return kSuccess;
}

int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (function == nullptr || name == nullptr) {
    return kInvalidValue;
  }
  const std::lock_guard lock(handleMutex);
  if (!modules.contains(module)) {
    return kInvalidHandle;
  }
  std::string payload(name);
  payload += '\0';
  payload += module->text;
  const Reply reply = ask(request("cuModuleGetFunction", Call::LoadFunction, device), payload);
  if (reply.status == kSuccess) {
    module->functions.push_back(std::make_unique<Function>(
        Function{.id = reply.value, .parameterBytes = reply.more, .device = module->device}));
    *function = module->functions.back().get();
  }
  return reply.status;
}

int cuFuncSetAttribute(Function* function, int attribute, int value) {
  if (attribute != 8) {  // dynamic shared memory
    endProgram("cuFuncSetAttribute", "attribute " + std::to_string(attribute) + " is not simulated");
  }
  if (value < 0 || value > kSharedOfABlock) {
    return kInvalidValue;
  }
  function->shared = value;
  return kSuccess;
}

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  alignas(8) unsigned value[kMostDevices];
};

struct LaunchConfig {  // CUlaunchConfig
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned count;
};

int cuLaunchKernelEx(const LaunchConfig* config, Function* function, void** parameters, void** extra) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (config == nullptr || function == nullptr || extra != nullptr || parameters == nullptr) {
    return function == nullptr ? kInvalidHandle : kInvalidValue;
  }
  unsigned cluster = 1;
  for (unsigned i = 0; i < config->count; i++) {
    if (config->attributes[i].id != 4 || config->attributes[i].value[1] != 1 || config->attributes[i].value[2] != 1) {
      endProgram("cuLaunchKernelEx",
                 "launch attribute " + std::to_string(config->attributes[i].id) + " is not simulated");
    }
    cluster = config->attributes[i].value[0];
  }
  std::string payload;
  const Grid grid{.gridX = config->gridX,
                  .gridY = config->gridY,
                  .gridZ = config->gridZ,
                  .blockX = config->blockX,
                  .blockY = config->blockY,
                  .blockZ = config->blockZ,
                  .cluster = cluster,
                  .shared = config->shared};
  if (const int status = payloadOfLaunch("cuLaunchKernelEx", function, grid, parameters, payload); status != kSuccess) {
    return status;
  }
  if (isToFail("launch")) {
    return kLaunchFailed;
  }
  Request r = request("cuLaunchKernelEx", Call::Launch, function->device);
  r.stickyLaunch = callToFail("sticky");
  r.stream = streamOf(r.name, config->stream, device);
  return ask(r, payload).status;
}

}  // extern "C"

}  // namespace simgpu
