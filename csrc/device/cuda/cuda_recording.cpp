#include "device/cuda/cuda_recording.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "device/cuda/driver/library.h"

namespace meshfuse {

namespace {

// The node that the capture of the stream added last, if it is the only one that later work follows.
cuda::GraphNode lastNode(cuda::Stream stream) {
  cuda::CaptureStatus status = cuda::CaptureStatus::None;
  cuda::Graph graph = nullptr;
  const cuda::GraphNode* last = nullptr;
  size_t count = 0;
  succeed(loadedDriver().streamGetCaptureInfo(stream, &status, nullptr, &graph, &last, &count),
          "cuStreamGetCaptureInfo", "a recording");
  return count == 1 ? *last : nullptr;
}

}  // namespace

CheckedLaunch makeCheckedLaunch() {
  void* memory = nullptr;
  succeed(loadedDriver().pinnedAllocate(&memory, sizeof(RefusedIndexRecord), cuda::kPortableMemory), "cuMemHostAlloc",
          "a kernel that checks indices");
  auto* const record = static_cast<RefusedIndexRecord*>(memory);
  *record = {};
  return {.record = record};
}

void freeRecord(const CheckedLaunch& launch) { driverLibrary().pinnedFree(launch.record); }

CudaRecording::~CudaRecording() {
  end();
  try {
    const CurrentContext current(context_);
    for (const CheckedLaunch& c : checked_) {
      freeRecord(c);
    }
  } catch (const DeviceError&) {  // the device is gone, and the graph with it
  }
}

void CudaRecording::end() noexcept {
  try {
    const CurrentContext current(context_);
    const DriverLibrary& d = driverLibrary();
    if (executable_ != nullptr) {
      d.graphExecDestroy(std::exchange(executable_, nullptr));
    }
    if (graph_ != nullptr) {
      d.graphDestroy(std::exchange(graph_, nullptr));
    }
  } catch (const DeviceError&) {  // the device is gone, and the graph with it
  }
}

void CudaRecording::launch(const Launch& l, cuda::Stream stream) {
  Node node{.kernel = &static_cast<const CudaKernel&>(l.kernel)};
  if (l.checksIndices) {
    checked_.push_back(makeCheckedLaunch());
    checked_.back().name = l.name;
    node.record = checked_.back().record;
  }
  const cuda::GraphNode before = lastNode(stream);
  node.kernel->launch(l.slots, node.record, stream);
  const cuda::GraphNode after = lastNode(stream);
  node.node = after == before ? nullptr : after;
  nodes_.push_back(node);
  last_ = l.name;
}

bool CudaRecording::finish(cuda::Graph graph) {
  graph_ = graph;
  // a later launch of a grid without blocks might have some
  const bool hasAllNodes = std::ranges::all_of(nodes_, [](const Node& n) { return n.node != nullptr; });
  return hasAllNodes && loadedDriver().graphInstantiate(&executable_, graph, 0) == cuda::Result::Success;
}

void CudaRecording::relaunch(int64_t number, const Launch& l) {
  const Node& node = nodes_[number];
  const CurrentContext current(context_);
  node.kernel->set(executable_, node.node, l.slots, node.record);
}

void CudaRecording::replay(cuda::Stream stream) const {
  succeed(loadedDriver().graphLaunch(executable_, stream), "cuGraphLaunch", "a recording that ends with {}", last_);
}

}  // namespace meshfuse
