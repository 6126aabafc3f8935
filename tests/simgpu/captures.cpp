#include "simgpu/captures.h"

#include <cstdio>
#include <string>

namespace meshfuse {

using cuda::Result;

void expectResult(Result got, Result expected, const char* call) {
  const std::string what = std::string(call) + " returns " + std::to_string(static_cast<int>(expected)) + ", got " +
                           std::to_string(static_cast<int>(got));
  require(got == expected, what.c_str());
}

void begin(Simulated& gpu, cuda::Stream stream, cuda::CaptureMode mode) {
  gpu.expect(gpu.streamBeginCapture(stream, mode), "cuStreamBeginCapture");
}

cuda::Graph capture(Simulated& gpu, cuda::Stream stream, const std::function<void()>& program, cuda::CaptureMode mode) {
  begin(gpu, stream, mode);
  program();
  cuda::Graph graph = nullptr;
  gpu.expect(gpu.streamEndCapture(stream, &graph), "cuStreamEndCapture");
  require(graph != nullptr, "a capture gives a graph");
  return graph;
}

cuda::GraphExec instantiate(Simulated& gpu, cuda::Graph graph) {
  cuda::GraphExec executable = nullptr;
  gpu.expect(gpu.graphInstantiate(&executable, graph, 0), "cuGraphInstantiate");
  return executable;
}

std::vector<cuda::GraphNode> nodesOf(Simulated& gpu, cuda::Graph graph) {
  size_t count = 0;
  gpu.expect(gpu.graphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
  std::vector<cuda::GraphNode> nodes(count);
  gpu.expect(gpu.graphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  require(count == nodes.size(), "the count of nodes");
  return nodes;
}

void order(Simulated& gpu, cuda::Stream first, cuda::Stream second) {
  const cuda::Event event = gpu.event();
  gpu.expect(gpu.eventRecord(event, first), "cuEventRecord");
  gpu.expect(gpu.streamWaitEvent(second, event, 0), "cuStreamWaitEvent");
}

cuda::CaptureStatus statusOf(Simulated& gpu, cuda::Stream stream) {
  cuda::CaptureStatus status{};
  gpu.expect(gpu.streamIsCapturing(stream, &status), "cuStreamIsCapturing");
  return status;
}

void expectInvalid(Simulated& gpu, cuda::Stream stream, cuda::DevicePointer memory) {
  require(statusOf(gpu, stream) == cuda::CaptureStatus::Invalidated, "the capture is invalid");
  expectResult(gpu.fillAsync(memory, 1, 1, stream), Result::CaptureInvalidated, "work in an invalid capture");
  auto graph = reinterpret_cast<cuda::Graph>(uintptr_t{1});
  expectResult(gpu.streamEndCapture(stream, &graph), Result::CaptureInvalidated, "cuStreamEndCapture");
  require(graph == nullptr, "an invalid capture gives no graph");
  require(statusOf(gpu, stream) == cuda::CaptureStatus::None, "the capture has ended");
  gpu.expect(gpu.fillAsync(memory, 1, 1, stream), "work after the capture");
  gpu.expect(gpu.streamSynchronize(stream), "cuStreamSynchronize");
}

}  // namespace meshfuse
