// Captures of the simulated driver for tests.
//
//   cuda::Graph graph = capture(gpu, stream, [&] { gpu.expect(gpu.fillAsync(a, 1, 64, stream), "fill"); });
#pragma once

#include <functional>

#include "simgpu/simulated.h"

namespace meshfuse {

// The work that `program` enqueues on the stream
cuda::Graph capture(Simulated& gpu, cuda::Stream stream, const std::function<void()>& program,
                    cuda::CaptureMode mode = cuda::CaptureMode::Global);
cuda::GraphExec instantiate(Simulated& gpu, cuda::Graph graph);
// Its nodes, in the order of the capture
std::vector<cuda::GraphNode> nodesOf(Simulated& gpu, cuda::Graph graph);

void begin(Simulated& gpu, cuda::Stream stream, cuda::CaptureMode mode = cuda::CaptureMode::Global);
// `second` does nothing more before what `first` has done so far.
void order(Simulated& gpu, cuda::Stream first, cuda::Stream second);
cuda::CaptureStatus statusOf(Simulated& gpu, cuda::Stream stream);

// Ends the process with status 1 unless the call has returned this.
void expectResult(cuda::Result got, cuda::Result expected, const char* call);
// Ends the capture, which is invalid, and checks that the stream can be used again.
void expectInvalid(Simulated& gpu, cuda::Stream stream, cuda::DevicePointer memory);

}  // namespace meshfuse
