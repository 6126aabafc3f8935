// The simulated driver: captures and graphs.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client.h"
#include "current.h"
#include "driver.h"

namespace simgpu {

namespace {

// The kernel of a library in a graph: its function is none of the program's, and its parameters are not readable.
Function opaque;
void* opaqueParameters[] = {reinterpret_cast<void*>(kDeviceBase)};

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  Function* function;
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, shared;
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};

struct CopyEnd {  // one side of CUDA_MEMCPY3D_v2
  size_t x, y, z, level;
  int memoryType;
  void* host;
  uint64_t device;
  void* array;
  void* reserved;
  size_t pitch, height;
};

struct CopyNodeParams {  // CUDA_MEMCPY3D_v2
  CopyEnd from, to;
  size_t width, height, depth;
};

struct FillNodeParams {  // CUDA_MEMSET_NODE_PARAMS_v1
  uint64_t to;
  size_t pitch;
  unsigned value, elementBytes;
  size_t width, height;
};

struct UpdateInfo {  // CUgraphExecUpdateResultInfo_v1
  int result;
  void* node;
  void* from;
};

// The parameters that cuGraphKernelNodeGetParams has given, which its node owns.
struct OwnedParameters {
  std::string bytes;
  void* pointers[1] = {};
};

std::mutex mutex;
std::map<uint64_t, OwnedParameters> parametersOf;               // by node
std::map<uint64_t, std::vector<void*>> dependenciesOf;          // by stream; what cuStreamGetCaptureInfo has given

void* handleOf(uint64_t id) { return reinterpret_cast<void*>(id); }

std::vector<uint64_t> handlesIn(const std::string& bytes) {
  std::vector<uint64_t> handles(bytes.size() / sizeof(uint64_t));
  std::memcpy(handles.data(), bytes.data(), bytes.size());
  return handles;
}

Request onGraph(const char* name, Call call, const void* a, const void* b = nullptr) {
  uint32_t device = 0;
  current(device);
  Request r = request(name, call, device);
  r.a = idOf(a);
  r.b = idOf(b);
  return r;
}

template <class T>
std::string_view payloadOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// The address of one side of a copy of one dimension; 0 if it has none.
uint64_t addressOf(const CopyEnd& end, size_t bytes) {
  constexpr int kHost = 1;
  constexpr int kDevice = 2;
  constexpr int kUnified = 4;
  if (end.y != 0 || end.z != 0 || end.level != 0) {
    return 0;
  }
  if (end.memoryType == kHost) {
    const char* const at = static_cast<const char*>(end.host) + end.x;
    return isPinned(at, bytes) ? idOf(at) : 0;
  }
  const uint64_t at = end.device + end.x;
  const bool isAddress = isDeviceAddress(at) || (end.memoryType == kUnified && isPinned(handleOf(at), bytes));
  return (end.memoryType == kDevice || end.memoryType == kUnified) && isAddress ? at : 0;
}

}  // namespace

extern "C" {

// -- captures ---------------------------------------------------------------------------------------------------------

int cuStreamBeginCapture_v2(void* stream, int mode) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (mode < 0 || mode > 2) {
    return kInvalidValue;
  }
  constexpr uint64_t kLegacy = 1;
  if (idOf(stream) <= kLegacy) {
    return kCaptureUnsupported;
  }
  Request r = request("cuStreamBeginCapture", Call::CaptureBegin, device);
  r.stream = idOf(stream);
  r.b = static_cast<uint64_t>(mode);
  return ask(r).status;
}

int cuStreamEndCapture(void* stream, void** graph) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (graph == nullptr) {
    return kInvalidValue;
  }
  Request r = request("cuStreamEndCapture", Call::CaptureEnd, device);
  r.stream = streamOf(r.name, stream, device);
  const Reply reply = ask(r);
  *graph = reply.status == kSuccess ? handleOf(reply.value) : nullptr;
  return reply.status;
}

int cuStreamGetCaptureInfo_v2(void* stream, int* captureStatus, uint64_t* id, void** graph, void*** dependencies,
                              size_t* count) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (captureStatus == nullptr) {
    return kInvalidValue;
  }
  Request r = request("cuStreamGetCaptureInfo", Call::CaptureInfo, device);
  r.stream = streamOf(r.name, stream, device);
  const auto [reply, bytes] = askForBytes(r);
  *captureStatus = static_cast<int>(reply.value);
  if (reply.status != kSuccess || reply.value != static_cast<uint64_t>(CaptureStatus::Active)) {
    return reply.status;
  }
  const std::vector<uint64_t> handles = handlesIn(bytes);
  const std::lock_guard lock(mutex);
  std::vector<void*>& given = dependenciesOf[r.stream];
  given.clear();
  std::transform(handles.begin() + 1, handles.end(), std::back_inserter(given), handleOf);
  if (id != nullptr) {
    *id = reply.more;
  }
  if (graph != nullptr) {
    *graph = handleOf(handles[0]);
  }
  if (dependencies != nullptr) {
    *dependencies = given.data();
  }
  if (count != nullptr) {
    *count = given.size();
  }
  return kSuccess;
}

int cuStreamIsCapturing(void* stream, int* captureStatus) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  if (captureStatus == nullptr) {
    return kInvalidValue;
  }
  Request r = request("cuStreamIsCapturing", Call::CaptureInfo, device);
  r.stream = streamOf(r.name, stream, device);
  const Reply reply = ask(r);
  *captureStatus = static_cast<int>(reply.value);
  return reply.status;
}

int cuThreadExchangeStreamCaptureMode(int* mode) {
  if (mode == nullptr || *mode < 0 || *mode > 2) {
    return kInvalidValue;
  }
  Request r = request("cuThreadExchangeStreamCaptureMode", Call::CaptureMode);
  r.b = static_cast<uint64_t>(*mode);
  *mode = static_cast<int>(ask(r).value);
  return kSuccess;
}

// -- graphs -----------------------------------------------------------------------------------------------------------

int cuGraphDestroy(void* graph) { return ask(onGraph("cuGraphDestroy", Call::GraphDestroy, graph)).status; }

int cuGraphGetNodes(void* graph, void** nodes, size_t* count) {
  if (count == nullptr) {
    return kInvalidValue;
  }
  const auto [reply, bytes] = askForBytes(onGraph("cuGraphGetNodes", Call::GraphNodes, graph));
  if (reply.status != kSuccess) {
    return reply.status;
  }
  const std::vector<uint64_t> all = handlesIn(bytes);
  if (nodes == nullptr) {
    *count = all.size();
    return kSuccess;
  }
  for (size_t i = 0; i < *count; i++) {
    nodes[i] = i < all.size() ? handleOf(all[i]) : nullptr;
  }
  *count = std::min(*count, all.size());
  return kSuccess;
}

int cuGraphNodeGetType(void* node, int* type) {
  if (type == nullptr) {
    return kInvalidValue;
  }
  const Reply reply = ask(onGraph("cuGraphNodeGetType", Call::GraphNodeType, node));
  *type = static_cast<int>(reply.value);
  return reply.status;
}

int cuGraphKernelNodeGetParams_v2(void* node, KernelNodeParams* params) {
  if (params == nullptr) {
    return kInvalidValue;
  }
  const auto [reply, bytes] = askForBytes(onGraph("cuGraphKernelNodeGetParams", Call::GraphNodeKernel, node));
  if (reply.status != kSuccess) {
    return reply.status;
  }
  *params = {.gridX = 1, .gridY = 1, .gridZ = 1, .blockX = 1, .blockY = 1, .blockZ = 1};
  if (bytes.empty()) {
    params->function = &opaque;
    params->parameters = opaqueParameters;
    return kSuccess;
  }
  LaunchShape shape;
  std::memcpy(&shape, bytes.data(), sizeof shape);
  params->function = static_cast<Function*>(handleOf(shape.handle));
  params->gridX = shape.blocks;
  params->blockX = shape.threads;
  params->shared = shape.shared;
  const std::lock_guard lock(mutex);
  OwnedParameters& own = parametersOf[idOf(node)];
  own.bytes = bytes.substr(sizeof shape);
  own.pointers[0] = own.bytes.data();
  params->parameters = own.pointers;
  return kSuccess;
}

// -- executable graphs ------------------------------------------------------------------------------------------------

int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  constexpr unsigned long long kFreesOnLaunch = 1;
  constexpr unsigned long long kLaunchesOnDevice = 4;
  constexpr unsigned long long kNodePriorities = 8;
  if (executable == nullptr || (flags & ~(kFreesOnLaunch | kLaunchesOnDevice | kNodePriorities)) != 0 ||
      (flags & (kFreesOnLaunch | kLaunchesOnDevice)) == (kFreesOnLaunch | kLaunchesOnDevice)) {
    return kInvalidValue;
  }
  if ((flags & kLaunchesOnDevice) != 0) {
    endProgram("cuGraphInstantiate", "graphs that a device launches are not simulated");
  }
  if (isToFail("graph")) {
    return kOutOfMemory;
  }
  const Reply reply = ask(onGraph("cuGraphInstantiate", Call::GraphInstantiate, graph));
  *executable = handleOf(reply.value);
  return reply.status;
}

int cuGraphExecDestroy(void* executable) {
  return ask(onGraph("cuGraphExecDestroy", Call::GraphExecDestroy, executable)).status;
}

int cuGraphLaunch(void* executable, void* stream) {
  uint32_t device = 0;
  if (const int status = current(device); status != kSuccess) {
    return status;
  }
  Request r = onGraph("cuGraphLaunch", Call::GraphLaunch, executable);
  r.stickyLaunch = callToFail("sticky");
  r.stream = streamOf(r.name, stream, device);
  return ask(r).status;
}

int cuGraphExecKernelNodeSetParams_v2(void* executable, void* node, const KernelNodeParams* p) {
  constexpr const char* kName = "cuGraphExecKernelNodeSetParams";
  if (isPlanted("update")) {
    return kSuccess;
  }
  if (p == nullptr || p->function == nullptr || p->parameters == nullptr || p->extra != nullptr) {
    return kInvalidValue;
  }
  if (p->function == &opaque) {
    endProgram(kName, "the function is a library's");
  }
  std::string payload;
  const Grid grid{.gridX = p->gridX,
                  .gridY = p->gridY,
                  .gridZ = p->gridZ,
                  .blockX = p->blockX,
                  .blockY = p->blockY,
                  .blockZ = p->blockZ,
                  .shared = p->shared};
  if (const int status = payloadOfLaunch(kName, p->function, grid, p->parameters, payload); status != kSuccess) {
    return status;
  }
  Request r = onGraph(kName, Call::GraphSetKernel, executable, node);
  r.device = p->function->device;
  return ask(r, payload).status;
}

int cuGraphExecMemcpyNodeSetParams(void* executable, void* node, const CopyNodeParams* p, void* context) {
  if (p == nullptr || context == nullptr || p->width == 0 || p->height != 1 || p->depth != 1) {
    return kInvalidValue;
  }
  const NodeCopy copy{.to = addressOf(p->to, p->width), .from = addressOf(p->from, p->width), .bytes = p->width};
  if (copy.to == 0 || copy.from == 0) {
    return kInvalidValue;
  }
  return ask(onGraph("cuGraphExecMemcpyNodeSetParams", Call::GraphSetCopy, executable, node), payloadOf(copy)).status;
}

int cuGraphExecMemsetNodeSetParams(void* executable, void* node, const FillNodeParams* p, void* context) {
  if (p == nullptr || context == nullptr || p->width == 0 || p->height != 1 || !isDeviceAddress(p->to) ||
      (p->elementBytes != 1 && p->elementBytes != 2 && p->elementBytes != 4)) {
    return kInvalidValue;
  }
  if (p->elementBytes != 1) {
    endProgram("cuGraphExecMemsetNodeSetParams", "elements of several bytes are not simulated");
  }
  const NodeFill fill{.to = p->to, .value = p->value & 0xff, .bytes = p->width};
  return ask(onGraph("cuGraphExecMemsetNodeSetParams", Call::GraphSetFill, executable, node), payloadOf(fill)).status;
}

int cuGraphExecUpdate_v2(void* executable, void* graph, UpdateInfo* info) {
  if (info == nullptr) {
    return kInvalidValue;
  }
  const auto [reply, bytes] = askForBytes(onGraph("cuGraphExecUpdate", Call::GraphUpdate, executable, graph));
  const std::vector<uint64_t> handles = handlesIn(bytes);
  *info = {.result = static_cast<int>(reply.value), .node = handleOf(handles[0]), .from = handleOf(handles[1])};
  return reply.status;
}

}  // extern "C"

}  // namespace simgpu
