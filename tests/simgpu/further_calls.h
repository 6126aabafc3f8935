// Calls of the driver and of NCCL that the simulated libraries have and meshfuse does not make, for the tests of these libraries.
#pragma once

#include "device/cuda/api/driver.h"
#include "device/cuda/api/nccl.h"

namespace meshfuse::cuda {

enum class NodeType : int { Kernel = 0, Copy = 1, Fill = 2, EventRecord = 7 };
enum class UpdateResult : int {
  Success = 0,
  Error = 1,
  TopologyChanged = 2,
  NodeTypeChanged = 3,
  ParametersChanged = 5,
  NotSupported = 6,
  FunctionChanged = 7,
  AttributesChanged = 8
};

using Array = struct ArrayObject*;

// A copy of one dimension has the height and depth 1 and the width in bytes.
struct CopyNodeParameters {
  size_t fromX, fromY, fromZ, fromLevel;
  MemoryType fromType;
  const void* fromHost;
  DevicePointer fromDevice;
  Array fromArray;
  void* reserved0;
  size_t fromPitch, fromHeight;
  size_t toX, toY, toZ, toLevel;
  MemoryType toType;
  void* toHost;
  DevicePointer toDevice;
  Array toArray;
  void* reserved1;
  size_t toPitch, toHeight;
  size_t width, height, depth;
};

struct FillNodeParameters {
  DevicePointer to;
  size_t pitch;
  unsigned value;
  unsigned elementBytes;
  size_t width, height;  // in elements, and 1
};

struct UpdateInfo {
  UpdateResult result;
  GraphNode node;  // that cannot be updated
  GraphNode from;  // whose edge to it differs
};

#define MESHFUSE_FURTHER_DRIVER_CALLS(call)                                                                         \
  call(copyToDevice, cuMemcpyHtoD_v2, cuda::Result, (cuda::DevicePointer to, const void* from, size_t bytes));      \
  call(copyToHost, cuMemcpyDtoH_v2, cuda::Result, (void* to, cuda::DevicePointer from, size_t bytes));              \
  call(streamIsCapturing, cuStreamIsCapturing, cuda::Result, (cuda::Stream stream, cuda::CaptureStatus * status));  \
  call(threadExchangeCaptureMode, cuThreadExchangeStreamCaptureMode, cuda::Result, (cuda::CaptureMode * mode));     \
  call(graphGetNodes, cuGraphGetNodes, cuda::Result, (cuda::Graph graph, cuda::GraphNode * nodes, size_t * count)); \
  call(graphNodeGetType, cuGraphNodeGetType, cuda::Result, (cuda::GraphNode node, cuda::NodeType * type));          \
  call(graphKernelNodeGetParameters, cuGraphKernelNodeGetParams_v2, cuda::Result,                                   \
       (cuda::GraphNode node, cuda::KernelNodeParameters * parameters));                                            \
  call(graphSetCopyNode, cuGraphExecMemcpyNodeSetParams, cuda::Result,                                              \
       (cuda::GraphExec executable, cuda::GraphNode node, const cuda::CopyNodeParameters* parameters,               \
        cuda::Context context));                                                                                    \
  call(graphSetFillNode, cuGraphExecMemsetNodeSetParams, cuda::Result,                                              \
       (cuda::GraphExec executable, cuda::GraphNode node, const cuda::FillNodeParameters* parameters,               \
        cuda::Context context));                                                                                    \
  call(graphUpdate, cuGraphExecUpdate_v2, cuda::Result,                                                             \
       (cuda::GraphExec executable, cuda::Graph graph, cuda::UpdateInfo * info))

}  // namespace meshfuse::cuda

namespace meshfuse::nccl {

inline constexpr int kNoColor = -1;  // of split: this rank gets no communicator

#define MESHFUSE_FURTHER_NCCL_CALLS(call)  \
  call(split, ncclCommSplit, nccl::Result, \
       (nccl::Communicator communicator, int color, int key, nccl::Communicator* part, nccl::Config* config))

}  // namespace meshfuse::nccl
