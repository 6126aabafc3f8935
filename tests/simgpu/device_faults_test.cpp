// Contexts that fail and devices that are lost, on demand: which call gives the error first, and that all later ones give it.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "simgpu/captures.h"
#include "simgpu/collectives.h"

namespace meshfuse::device_faults {
namespace {

using cuda::DevicePointer;
using cuda::Result;

constexpr size_t kFaultBytes = 256;

class DeviceFaults : public CollectiveTest {
 protected:
  DeviceFaults() : CollectiveTest(2) {}
};

// A kernel that does nothing, and the handles that later calls need.
struct Victim {
  explicit Victim(Simulated& g)
      : gpu(g),
        nothing(gpu.kernel(kTwice, "twice", "sm_90", &module)),
        memory(gpu.allocate(kFaultBytes)),
        pinned(gpu.pinned(1)),
        stream(gpu.stream()),
        event(gpu.event()),
        graph(capture(gpu, stream, [&] { launch(); })),
        executable(instantiate(gpu, graph)) {
    gpu.expect(gpu.eventRecord(event, stream), "cuEventRecord");
    gpu.expect(gpu.streamSynchronize(stream), "cuStreamSynchronize");
  }
  void launch() { expectResult(tryLaunch(), Result::Success, "cuLaunchKernelEx"); }
  Result tryLaunch() {
    TwiceArguments arguments{memory, memory, 0};
    void* parameters[] = {&arguments};
    cuda::LaunchConfig config{.gridX = 1, .gridY = 1, .gridZ = 1, .blockX = 64, .blockY = 1, .blockZ = 1};
    config.stream = stream;
    return gpu.launchKernel(&config, nothing, parameters, nullptr);
  }
  // Each call on the context gives the error.
  void expectFailed(Result expected) {
    void* host = nullptr;
    DevicePointer made = 0;
    size_t bytes = 0;
    cuda::Stream newStream = nullptr;
    cuda::Event newEvent = nullptr;
    cuda::GraphExec newExecutable = nullptr;
    const std::vector<std::pair<const char*, Result>> results = {
        {"cuStreamSynchronize", gpu.streamSynchronize(stream)},
        {"cuStreamQuery", gpu.streamQuery(stream)},
        {"cuCtxSynchronize", gpu.contextSynchronize()},
        {"cuEventQuery", gpu.eventQuery(event)},
        {"cuEventSynchronize", gpu.eventSynchronize(event)},
        {"cuEventRecord", gpu.eventRecord(event, stream)},
        {"cuStreamWaitEvent", gpu.streamWaitEvent(stream, event, 0)},
        {"cuLaunchKernelEx", tryLaunch()},
        {"cuMemAlloc", gpu.memoryAllocate(&made, kFaultBytes)},
        {"cuMemFree", gpu.memoryFree(memory)},
        {"cuMemGetInfo", gpu.memoryInfo(&bytes, &bytes)},
        {"cuMemHostAlloc", gpu.pinnedAllocate(&host, kFaultBytes, 0)},
        {"cuMemFreeHost", gpu.pinnedFree(pinned)},
        {"cuMemcpyHtoD", gpu.copyToDevice(memory, pinned, 4)},
        {"cuMemcpyDtoHAsync", gpu.copyToHostAsync(pinned, memory, 4, stream)},
        {"cuMemsetD8Async", gpu.fillAsync(memory, 0, 4, stream)},
        {"cuStreamCreate", gpu.streamCreate(&newStream, cuda::kNonBlockingStream)},
        {"cuEventCreate", gpu.eventCreate(&newEvent, cuda::kEventWithoutTiming)},
        {"cuStreamBeginCapture", gpu.streamBeginCapture(stream, cuda::CaptureMode::Relaxed)},
        {"cuGraphInstantiate", gpu.graphInstantiate(&newExecutable, graph, 0)},
        {"cuGraphLaunch", gpu.graphLaunch(executable, stream)},
        {"cuModuleUnload", gpu.moduleUnload(module)},
        {"cuEventDestroy", gpu.eventDestroy(event)},
        {"cuStreamDestroy", gpu.streamDestroy(stream)}};
    for (const auto& [call, result] : results) {
      expectResult(result, expected, call);
    }
  }

  Simulated& gpu;
  cuda::Module module = nullptr;
  cuda::Function nothing;
  DevicePointer memory;
  float* pinned;
  cuda::Stream stream;
  cuda::Event event;
  cuda::Graph graph;
  cuda::GraphExec executable;
};

// Of a program that is right, but for the error that it meets: nothing may be called at its end.
SimulatedProgram thatEnds(const std::function<void(Simulated&)>& program) {
  return [=](Simulated& gpu) {
    program(gpu);
    std::_Exit(0);
  };
}

TEST_F(DeviceFaults, ALaunchFailsWhileItRuns) {
  for (const char* number : {"2", "3"}) {
    set("SIMGPU_FAULT", std::string("sticky:") + number);
    expectFine(thatEnds([fails = std::string(number) == "2"](Simulated& gpu) {
      Victim v(gpu);
      v.launch();
      gpu.expect(gpu.streamSynchronize(v.stream), "the first launch succeeds");
      v.launch();  // the call succeeds
      if (fails) {
        expectResult(gpu.streamSynchronize(v.stream), Result::LaunchFailed, "the wait for it");
        v.expectFailed(Result::LaunchFailed);
      } else {
        gpu.expect(gpu.streamSynchronize(v.stream), "the second launch succeeds");
      }
    }));
  }
}

TEST_F(DeviceFaults, ALaunchOfAGraphFailsWhileItRuns) {
  set("SIMGPU_FAULT", "sticky:2");
  expectFine(thatEnds([](Simulated& gpu) {
    Victim v(gpu);
    v.launch();
    gpu.expect(gpu.graphLaunch(v.executable, v.stream), "cuGraphLaunch");
    expectResult(gpu.contextSynchronize(), Result::LaunchFailed, "the wait for it");
    v.expectFailed(Result::LaunchFailed);
  }));
}

// Whoever waits for other work of the context gets the error too; other contexts go on.
TEST_F(DeviceFaults, AFailureEndsItsContextAlone) {
  set("SIMGPU_FAULT", "sticky:1");
  expectFine(thatEnds([](Simulated& gpu) {
    Victim v(gpu);
    cuda::Context context = nullptr;
    gpu.expect(gpu.primaryContextRetain(&context, 1), "cuDevicePrimaryCtxRetain");
    gpu.expect(gpu.contextPush(context), "cuCtxPushCurrent");
    Victim other(gpu);
    v.launch();
    expectResult(gpu.streamSynchronize(v.stream), Result::LaunchFailed, "the wait for the launch");
    other.launch();
    gpu.expect(gpu.contextSynchronize(), "the other context");
  }));
}

TEST_F(DeviceFaults, ARankWhoseContextFailsDoesNotTellItsPeers) {
  set("SIMGPU_FAULT", "sticky:1");
  expectFine(thatEnds(onThreads(2, [](int number, const nccl::UniqueId& id) {
    Rank rank(number, 2, id, {.isBlocking = false, .isDestroyed = false});
    const DevicePointer x = rank.buffer(std::vector<float>{1});
    const cuda::Function nothing = rank.gpu.kernel(kTwice, "twice");
    if (number == 0) {
      rank.gpu.launch(nothing, 1, 64, TwiceArguments{x, x, 0}, rank.stream);
      expectResult(rank.gpu.streamSynchronize(rank.stream), Result::LaunchFailed, "the wait for the launch");
      require(rank.allReduce(x, x, 1) == nccl::Result::CudaError, "calls of NCCL fail");
      require(rank.state() == nccl::Result::CudaError, "the communicator has the error");
    } else {
      require(rank.allReduce(x, x, 1) <= nccl::Result::InProgress, "ncclAllReduce");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const nccl::Result state = rank.state();
      require(state == nccl::Result::Success || state == nccl::Result::InProgress, "the peer learns nothing");
    }
    require(rank.nccl.abort(rank.communicator) == nccl::Result::Success, "ncclCommAbort");
    expectResult(rank.gpu.streamSynchronize(rank.stream), number == 0 ? Result::LaunchFailed : Result::Success, "wait");
  })));
}

TEST_F(DeviceFaults, ACallFindsItsDeviceLost) {
  set("SIMGPU_FAULT", "lost:40");
  expectFine(thatEnds([](Simulated& gpu) {
    Victim v(gpu);
    Result result = Result::Success;
    for (int i = 0; i < 40 && result == Result::Success; i++) {
      result = gpu.fillAsync(v.memory, 0, 4, v.stream);
    }
    expectResult(result, Result::DeviceUnavailable, "the call that finds the device lost");
    v.expectFailed(Result::DeviceUnavailable);
    cuda::Context context = nullptr;
    gpu.expect(gpu.primaryContextRetain(&context, 1), "cuDevicePrimaryCtxRetain");
    gpu.expect(gpu.contextPush(context), "cuCtxPushCurrent");
    const cuda::Stream stream = gpu.stream();
    gpu.expect(gpu.streamSynchronize(stream), "the other device");
  }));
}

// A thread that waits for the device gets the error.
TEST_F(DeviceFaults, AWaitEndsWhenTheDeviceIsLost) {
  set("SIMGPU_FAULT", "lost:60");
  set("SIMGPU_DELAY", "100000");
  expectFine(thatEnds([](Simulated& gpu) {
    const cuda::Stream stream = gpu.stream();
    const DevicePointer memory = gpu.allocate(kFaultBytes);
    const std::jthread waits([&] {
      Simulated own;
      for (int i = 0; i < 30; i++) {
        gpu.fillAsync(memory, 0, 4, stream);
      }
      expectResult(own.streamSynchronize(stream), Result::DeviceUnavailable, "the wait");
    });
    size_t bytes = 0;
    while (gpu.memoryInfo(&bytes, &bytes) == Result::Success) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }));
}

}  // namespace
}  // namespace meshfuse::device_faults
