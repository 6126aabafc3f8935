// What a program may do while a stream is capturing: the errors of the documentation, and the same calls where they are allowed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "simgpu/captures.h"

namespace meshfuse::capture_rules {
namespace {

using cuda::CaptureMode;
using cuda::CaptureStatus;
using cuda::DevicePointer;
using cuda::Event;
using cuda::Result;
using cuda::Stream;

constexpr size_t kCapturedBytes = 256;

struct Setting {
  explicit Setting(Simulated& gpu) : memory(gpu.allocate(kCapturedBytes)), stream(gpu.stream()), other(gpu.stream()) {}

  DevicePointer memory;
  Stream stream;
  Stream other;
};

void onThread(const std::function<void(Simulated&)>& program) {
  std::jthread([&] {
    Simulated gpu;
    program(gpu);
  });
}

TEST(SimulatedCapture, HasAStatusAnIdAndAGraph) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    require(statusOf(gpu, s.stream) == CaptureStatus::None, "no capture");
    begin(gpu, s.stream);
    require(statusOf(gpu, s.stream) == CaptureStatus::Active, "a capture");
    require(statusOf(gpu, s.other) == CaptureStatus::None, "no capture on another stream");
    CaptureStatus status{};
    unsigned long long id = 0;
    cuda::Graph graph = nullptr;
    const cuda::GraphNode* nodes = nullptr;
    size_t count = 7;
    gpu.expect(gpu.streamGetCaptureInfo(s.stream, &status, &id, &graph, &nodes, &count), "cuStreamGetCaptureInfo");
    require(status == CaptureStatus::Active && count == 0, "nothing before the first node");
    gpu.expect(gpu.fillAsync(s.memory, 1, 4, s.stream), "fill");
    gpu.expect(gpu.streamGetCaptureInfo(s.stream, &status, nullptr, &graph, &nodes, &count), "cuStreamGetCaptureInfo");
    require(count == 1, "the next node depends on the first one");
    const cuda::GraphNode first = nodes[0];
    cuda::GraphExec executable = nullptr;
    expectResult(gpu.graphInstantiate(&executable, graph, 0), Result::InvalidValue, "a graph that is being captured");
    cuda::Graph ended = nullptr;
    gpu.expect(gpu.streamEndCapture(s.stream, &ended), "cuStreamEndCapture");
    require(ended == graph && nodesOf(gpu, graph) == std::vector{first}, "the graph of the capture");
    begin(gpu, s.stream);
    unsigned long long another = 0;
    gpu.expect(gpu.streamGetCaptureInfo(s.stream, &status, &another, nullptr, nullptr, nullptr), "info");
    require(another != id, "each capture has an id of its own");
    gpu.expect(gpu.streamEndCapture(s.stream, &ended), "cuStreamEndCapture");
  });
}

TEST(SimulatedCapture, DoesNotRunWhatItCaptures) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    gpu.expect(gpu.fillAsync(s.memory, 1, 1, s.stream), "fill");
    capture(gpu, s.stream, [&] { gpu.expect(gpu.fillAsync(s.memory, 2, 1, s.stream), "fill"); });
    gpu.expect(gpu.streamSynchronize(s.stream), "cuStreamSynchronize");
    unsigned char byte = 0;
    gpu.expect(gpu.copyToHost(&byte, s.memory, 1), "cuMemcpyDtoH");
    require(byte == 1, "the captured fill has not run");
  });
}

// -- waits ------------------------------------------------------------------------------------------------------------

TEST(SimulatedCapture, WaitsForItsStreamsBreakIt) {
  for (const CaptureMode mode : {CaptureMode::Global, CaptureMode::Relaxed}) {
    expectFine([=](Simulated& gpu) {
      const Setting s(gpu);
      begin(gpu, s.stream, mode);
      expectResult(gpu.streamSynchronize(s.stream), Result::CaptureUnsupported, "cuStreamSynchronize");
      expectResult(gpu.streamQuery(s.stream), Result::CaptureInvalidated, "cuStreamQuery of an invalid capture");
      expectInvalid(gpu, s.stream, s.memory);
      begin(gpu, s.stream, mode);
      expectResult(gpu.streamQuery(s.stream), Result::CaptureUnsupported, "cuStreamQuery");
      expectInvalid(gpu, s.stream, s.memory);
    });
  }
}

TEST(SimulatedCapture, WaitsForItsEventsBreakIt) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    const Event event = gpu.event();
    for (const bool asks : {true, false}) {
      begin(gpu, s.stream, CaptureMode::Relaxed);
      gpu.expect(gpu.eventRecord(event, s.stream), "cuEventRecord");
      expectResult(asks ? gpu.eventQuery(event) : gpu.eventSynchronize(event), Result::CapturedEvent, "an event");
      expectInvalid(gpu, s.stream, s.memory);
    }
    expectResult(gpu.eventQuery(event), Result::CapturedEvent, "the event of a capture that has ended");
    gpu.expect(gpu.eventRecord(event, s.stream), "cuEventRecord");  // now it stands for work again
    gpu.expect(gpu.eventSynchronize(event), "cuEventSynchronize");
  });
}

TEST(SimulatedCapture, WaitsForTheContextBreakItInAllModes) {
  for (const CaptureMode mode : {CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed}) {
    expectFine([=](Simulated& gpu) {
      const Setting s(gpu);
      begin(gpu, s.stream, mode);
      expectResult(gpu.contextSynchronize(), Result::CaptureUnsupported, "cuCtxSynchronize");
      expectInvalid(gpu, s.stream, s.memory);
      gpu.expect(gpu.contextSynchronize(), "cuCtxSynchronize after the capture");
    });
  }
}

// -- unsafe calls -----------------------------------------------------------------------------------------------------

constexpr int kUnsafeCalls = 8;

// An unsafe call and its result. All are right outside of captures.
Result unsafe(Simulated& gpu, int call, const Setting& s, void* pinned, Event event, cuda::Module module) {
  DevicePointer made = 0;
  void* host = nullptr;
  char byte = 0;
  switch (call) {
    case 0:
      return gpu.memoryAllocate(&made, kCapturedBytes);
    case 1:
      return gpu.memoryFree(s.memory);
    case 2:
      return gpu.pinnedAllocate(&host, kCapturedBytes, 0);
    case 3:
      return gpu.pinnedFree(pinned);
    case 4:
      return gpu.copyToDevice(s.memory, &byte, 1);
    case 5:
      return gpu.eventQuery(event);
    case 6:
      return gpu.streamSynchronize(s.other);
    default:
      return gpu.moduleUnload(module);
  }
}

// The call is made while this thread or another one captures.
void callInCapture(CaptureMode mode, std::optional<CaptureMode> ofThread, bool isOwnThread, bool isAllowed) {
  for (int call = 0; call < kUnsafeCalls; call++) {
    SCOPED_TRACE(call);
    expectFine([=](Simulated& gpu) {
      const Setting s(gpu);
      const DevicePointer kept = gpu.allocate(kCapturedBytes);
      void* const pinned = gpu.pinned(1);
      const Event event = gpu.event();
      cuda::Module module = nullptr;
      gpu.kernel(kTwice, "twice", "sm_90", &module);
      begin(gpu, s.stream, mode);
      Result result{};
      const auto make = [&](Simulated& on) {
        CaptureMode exchanged = ofThread.value_or(CaptureMode::Global);
        on.expect(on.threadExchangeCaptureMode(&exchanged), "cuThreadExchangeStreamCaptureMode");
        require(exchanged == CaptureMode::Global, "the mode of a thread before it is set");
        result = unsafe(on, call, s, pinned, event, module);
        on.expect(on.threadExchangeCaptureMode(&exchanged), "cuThreadExchangeStreamCaptureMode");
        require(exchanged == ofThread.value_or(CaptureMode::Global), "the mode of a thread that has been set");
      };
      isOwnThread ? make(gpu) : onThread(make);
      expectResult(result, isAllowed ? Result::Success : Result::CaptureUnsupported, "an unsafe call");
      if (isAllowed) {
        cuda::Graph graph = nullptr;
        gpu.expect(gpu.streamEndCapture(s.stream, &graph), "cuStreamEndCapture");
      } else {
        expectInvalid(gpu, s.stream, kept);
      }
    });
  }
}

TEST(SimulatedCapture, ForbidsUnsafeCallsOfItsThread) {
  callInCapture(CaptureMode::Global, {}, true, false);
  callInCapture(CaptureMode::ThreadLocal, CaptureMode::ThreadLocal, true, false);
}

TEST(SimulatedCapture, AllowsUnsafeCallsOfItsThreadIfRelaxed) {
  callInCapture(CaptureMode::Relaxed, {}, true, true);
  callInCapture(CaptureMode::Global, CaptureMode::Relaxed, true, true);
}

TEST(SimulatedCapture, ForbidsUnsafeCallsOfOtherThreadsIfGlobal) {
  callInCapture(CaptureMode::Global, {}, false, false);
}

TEST(SimulatedCapture, AllowsUnsafeCallsOfOtherThreads) {
  callInCapture(CaptureMode::ThreadLocal, {}, false, true);
  callInCapture(CaptureMode::Global, CaptureMode::ThreadLocal, false, true);
}

TEST(SimulatedCapture, DoesNotKnowOtherModes) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    auto mode = static_cast<CaptureMode>(3);
    expectResult(gpu.streamBeginCapture(s.stream, mode), Result::InvalidValue, "cuStreamBeginCapture");
    expectResult(gpu.threadExchangeCaptureMode(&mode), Result::InvalidValue, "cuThreadExchangeStreamCaptureMode");
  });
}

// -- where a capture begins and ends ----------------------------------------------------------------------------------

TEST(SimulatedCapture, DoesNotBeginOnTheLegacyStream) {
  expectFine([](Simulated& gpu) {
    expectResult(gpu.streamBeginCapture(nullptr, CaptureMode::Global), Result::CaptureUnsupported, "null");
    const auto legacy = reinterpret_cast<Stream>(uintptr_t{1});
    expectResult(gpu.streamBeginCapture(legacy, CaptureMode::Global), Result::CaptureUnsupported, "CU_STREAM_LEGACY");
  });
}

TEST(SimulatedCapture, BeginsOnce) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    begin(gpu, s.stream);
    expectResult(gpu.streamBeginCapture(s.stream, CaptureMode::Global), Result::InvalidValue, "cuStreamBeginCapture");
    expectInvalid(gpu, s.stream, s.memory);
  });
}

TEST(SimulatedCapture, EndsOnItsStream) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    cuda::Graph graph = nullptr;
    expectResult(gpu.streamEndCapture(s.stream, &graph), Result::CaptureUnmatched, "a stream that does not capture");
    begin(gpu, s.stream);
    order(gpu, s.stream, s.other);
    expectResult(gpu.streamEndCapture(s.other, &graph), Result::CaptureUnmatched, "a stream that has joined");
    require(statusOf(gpu, s.other) == CaptureStatus::Invalidated, "the capture is invalid on all of its streams");
    expectInvalid(gpu, s.stream, s.memory);
    require(statusOf(gpu, s.other) == CaptureStatus::None, "the capture has ended on all of its streams");
  });
}

TEST(SimulatedCapture, EndsOnItsThreadUnlessRelaxed) {
  for (const CaptureMode mode : {CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed}) {
    expectFine([=](Simulated& gpu) {
      const Setting s(gpu);
      begin(gpu, s.stream, mode);
      const bool isRelaxed = mode == CaptureMode::Relaxed;
      onThread([&](Simulated& own) {
        cuda::Graph graph = nullptr;
        expectResult(own.streamEndCapture(s.stream, &graph), isRelaxed ? Result::Success : Result::CaptureWrongThread,
                     "cuStreamEndCapture");
      });
      if (!isRelaxed) {
        expectInvalid(gpu, s.stream, s.memory);
      }
    });
  }
}

TEST(SimulatedCapture, EndsWithAllStreamsJoined) {
  for (const bool joins : {true, false}) {
    expectFine([=](Simulated& gpu) {
      const Setting s(gpu);
      begin(gpu, s.stream);
      order(gpu, s.stream, s.other);
      gpu.expect(gpu.fillAsync(s.memory, 1, 1, s.other), "fill");
      if (joins) {
        order(gpu, s.other, s.stream);
      }
      cuda::Graph graph = nullptr;
      expectResult(gpu.streamEndCapture(s.stream, &graph), joins ? Result::Success : Result::CaptureUnjoined, "end");
      require((graph != nullptr) == joins, "a graph");
      for (const Stream stream : {s.stream, s.other}) {
        require(statusOf(gpu, stream) == CaptureStatus::None, "the capture has ended");
      }
    });
  }
}

// Joined, but more work follows
TEST(SimulatedCapture, EndsWithAllWorkJoined) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    begin(gpu, s.stream);
    order(gpu, s.stream, s.other);
    order(gpu, s.other, s.stream);
    gpu.expect(gpu.fillAsync(s.memory, 1, 1, s.other), "fill");
    cuda::Graph graph = nullptr;
    expectResult(gpu.streamEndCapture(s.stream, &graph), Result::CaptureUnjoined, "cuStreamEndCapture");
  });
}

// -- what crosses the border of a capture -----------------------------------------------------------------------------

TEST(SimulatedCapture, DoesNotWaitForWorkThatIsNotCaptured) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    const Event event = gpu.event();
    gpu.expect(gpu.eventRecord(event, s.other), "cuEventRecord");
    begin(gpu, s.stream);
    expectResult(gpu.streamWaitEvent(s.stream, event, 0), Result::CaptureIsolation, "cuStreamWaitEvent");
    expectInvalid(gpu, s.stream, s.memory);
  });
}

TEST(SimulatedCapture, IsNotWaitedForAfterItsEnd) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    const Event event = gpu.event();
    capture(gpu, s.stream, [&] { gpu.expect(gpu.eventRecord(event, s.stream), "cuEventRecord"); });
    expectResult(gpu.streamWaitEvent(s.other, event, 0), Result::CapturedEvent, "cuStreamWaitEvent");
    require(statusOf(gpu, s.other) == CaptureStatus::None, "no capture");
  });
}

TEST(SimulatedCapture, DoesNotMergeWithAnother) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    const Event event = gpu.event();
    begin(gpu, s.stream);
    begin(gpu, s.other);
    gpu.expect(gpu.eventRecord(event, s.stream), "cuEventRecord");
    expectResult(gpu.streamWaitEvent(s.other, event, 0), Result::CaptureMerge, "cuStreamWaitEvent");
    cuda::Graph graph = nullptr;
    expectResult(gpu.streamEndCapture(s.other, &graph), Result::CaptureInvalidated, "cuStreamEndCapture");
    expectInvalid(gpu, s.stream, s.memory);
  });
}

TEST(SimulatedCapture, DoesNotTakeTheLegacyStreamIn) {
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    const Event event = gpu.event();
    begin(gpu, s.stream);
    gpu.expect(gpu.eventRecord(event, s.stream), "cuEventRecord");
    expectResult(gpu.streamWaitEvent(nullptr, event, 0), Result::CaptureImplicit, "cuStreamWaitEvent");
    expectInvalid(gpu, s.stream, s.memory);
  });
}

// Kernels belong to the context of their module.
TEST(SimulatedCapture, HasNoKernelsOfOtherContexts) {
  setenv("SIMGPU_DEVICES", "2", 1);
  expectFine([](Simulated& gpu) {
    const Setting s(gpu);
    const cuda::Function own = gpu.kernel(kTwice, "twice");
    cuda::Context context = nullptr;
    gpu.expect(gpu.primaryContextRetain(&context, 1), "cuDevicePrimaryCtxRetain");
    gpu.expect(gpu.contextPush(context), "cuCtxPushCurrent");
    const cuda::Function foreign = gpu.kernel(kTwice, "twice");
    gpu.expect(gpu.contextPop(&context), "cuCtxPopCurrent");
    const auto launch = [&](cuda::Function function) {
      TwiceArguments arguments{s.memory, s.memory, 0};
      void* parameters[] = {&arguments};
      cuda::LaunchConfig config{.gridX = 1, .gridY = 1, .gridZ = 1, .blockX = 64, .blockY = 1, .blockZ = 1};
      config.stream = s.stream;
      return gpu.launchKernel(&config, function, parameters, nullptr);
    };
    begin(gpu, s.stream);
    expectResult(launch(own), Result::Success, "cuLaunchKernelEx");
    expectResult(launch(foreign), Result::InvalidHandle, "cuLaunchKernelEx");
    expectInvalid(gpu, s.stream, s.memory);
  });
  unsetenv("SIMGPU_DEVICES");
}

// -- what is not simulated --------------------------------------------------------------------------------------------

TEST(SimulatedCapture, OfAllocationsIsNotSimulated) {
  const auto program = [](bool frees) {
    return [=](Simulated& gpu) {
      const Setting s(gpu);
      const cuda::MemoryPool pool = gpu.pool();
      DevicePointer memory = 0;
      if (frees) {
        gpu.expect(gpu.memoryAllocateAsync(&memory, 64, pool, s.stream), "cuMemAllocFromPoolAsync");
      }
      begin(gpu, s.stream);
      frees ? gpu.memoryFreeAsync(memory, s.stream) : gpu.memoryAllocateAsync(&memory, 64, pool, s.stream);
    };
  };
  expectReport("cuMemAllocFromPoolAsync: nodes that allocate or free memory are not simulated", program(false));
  expectReport("cuMemFreeAsync: nodes that allocate or free memory are not simulated", program(true));
}

TEST(SimulatedCapture, OfPageableMemoryIsNotSimulated) {
  expectReport("cuMemcpyHtoDAsync:\n.*pageable memory is not simulated", [](Simulated& gpu) {
    const Setting s(gpu);
    const int pageable = 1;
    begin(gpu, s.stream);
    gpu.copyToDeviceAsync(s.memory, &pageable, sizeof pageable, s.stream);
  });
}

TEST(SimulatedCapture, OfGraphsIsNotSimulated) {
  expectReport("cuGraphLaunch: nodes that launch graphs are not simulated", [](Simulated& gpu) {
    const Setting s(gpu);
    const cuda::GraphExec executable = instantiate(gpu, capture(gpu, s.stream, [] {}));
    begin(gpu, s.stream);
    gpu.graphLaunch(executable, s.stream);
  });
}

TEST(SimulatedCapture, OfAStreamThatIsDestroyedIsFound) {
  expectReport("cuStreamDestroy: the stream is capturing", [](Simulated& gpu) {
    const Setting s(gpu);
    begin(gpu, s.stream);
    gpu.streamDestroy(s.stream);
  });
}

}  // namespace
}  // namespace meshfuse::capture_rules
