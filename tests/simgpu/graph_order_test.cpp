// The order of the nodes of a graph, of its launches and of other work: programs that order what they must, and the same programs without one edge.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "simgpu/captures.h"

namespace meshfuse::graph_order {
namespace {

using cuda::DevicePointer;
using cuda::GraphExec;
using cuda::Stream;

constexpr size_t kNodeCount = 64;
constexpr size_t kNodeBytes = kNodeCount * sizeof(float);
constexpr const char* kUnorderedInGraph = ".*, and nothing orders the two";

struct Streams {
  explicit Streams(Simulated& gpu)
      : a(gpu.allocate(kNodeBytes)), b(gpu.allocate(kNodeBytes)), first(gpu.stream()), second(gpu.stream()) {
    gpu.expect(gpu.fillAsync(a, 0, kNodeBytes, first), "fill");
    gpu.expect(gpu.fillAsync(b, 0, kNodeBytes, first), "fill");
    gpu.expect(gpu.contextSynchronize(), "cuCtxSynchronize");
  }
  DevicePointer a, b;
  Stream first, second;
};

void launch(Simulated& gpu, GraphExec executable, Stream stream) {
  gpu.expect(gpu.graphLaunch(executable, stream), "cuGraphLaunch");
}

// Two branches; one reads what the other writes.
TEST(SimulatedGraphOrder, AMissingEdgeIsFound) {
  const auto program = [](bool isOrdered) {
    return [=](Simulated& gpu) {
      const Streams s(gpu);
      const cuda::Function twice = gpu.kernel(kTwice, "twice");
      const GraphExec executable =
          instantiate(gpu, capture(gpu, s.first, [&] {
                        order(gpu, s.first, s.second);
                        gpu.expect(gpu.fillAsync(s.a, 1, kNodeBytes, s.first), "fill");
                        if (isOrdered) {
                          order(gpu, s.first, s.second);
                        }
                        gpu.launch(twice, 1, 64, TwiceArguments{s.a, s.b, kNodeCount}, s.second);
                        order(gpu, s.second, s.first);
                      }));
      launch(gpu, executable, s.first);
      launch(gpu, executable, s.first);
      gpu.expect(gpu.streamSynchronize(s.first), "cuStreamSynchronize");
    };
  };
  expectFine(program(true));
  expectReport(
      "(cuLaunchKernelEx of twice|cuMemsetD8Async) .node [12] of graph 1. in cuGraphLaunch .*(reads|writes) bytes of "
      "(cuLaunchKernelEx of twice|cuMemsetD8Async) .node [12] of graph 1. in cuGraphLaunch" +
          std::string(kUnorderedInGraph),
      program(false));
}

// Branches that have no order run in any. The host sees which one ends first.
TEST(SimulatedGraphOrder, IsRandomAmongThoseAllowed) {
  setenv("SIMGPU_DELAY", "4000", 1);
  expectFine([](Simulated& gpu) {
    const Streams s(gpu);
    const cuda::Event ofFirst = gpu.event();
    const cuda::Event ofSecond = gpu.event();
    const auto record = [&](cuda::Event event, cuda::Stream stream) {
      gpu.expect(gpu.eventRecordWithFlags(event, stream, cuda::kExternalRecord), "cuEventRecordWithFlags");
    };
    const GraphExec executable = instantiate(gpu, capture(gpu, s.first, [&] {
                                               order(gpu, s.first, s.second);
                                               record(ofFirst, s.first);
                                               record(ofSecond, s.second);
                                               order(gpu, s.second, s.first);
                                             }));
    std::set<bool> seen;
    for (int i = 0; i < 100 && seen.size() < 2; i++) {
      launch(gpu, executable, s.first);
      bool first = false;
      bool second = false;
      while (!first && !second) {
        second = gpu.eventQuery(ofSecond) == cuda::Result::Success;
        first = gpu.eventQuery(ofFirst) == cuda::Result::Success;
      }
      if (first != second) {
        seen.insert(second);
      }
      gpu.expect(gpu.streamSynchronize(s.first), "cuStreamSynchronize");
    }
    require(seen.size() == 2, "each of two branches runs first at times");
  });
  unsetenv("SIMGPU_DELAY");
}

TEST(SimulatedGraphOrder, OtherWorkOfItsStreamIsOrdered) {
  expectFine([](Simulated& gpu) {
    const Streams s(gpu);
    const GraphExec executable = instantiate(
        gpu, capture(gpu, s.first, [&] { gpu.expect(gpu.fillAsync(s.a, 1, kNodeBytes, s.first), "fill"); }));
    gpu.expect(gpu.fillAsync(s.a, 2, kNodeBytes, s.first), "fill");
    launch(gpu, executable, s.first);
    gpu.expect(gpu.fillAsync(s.a, 3, kNodeBytes, s.first), "fill");
  });
}

// The simulation forgets streams that have ended when there are many of them, with the graphs that were launched there.
TEST(SimulatedGraphOrder, HoldsAfterItsStreamHasEnded) {
  const auto program = [](bool waits) {
    return [=](Simulated& gpu) {
      const Streams s(gpu);
      const auto destroy = [&](Stream stream) { gpu.expect(gpu.streamDestroy(stream), "cuStreamDestroy"); };
      const Stream ofGraph = gpu.stream();
      launch(gpu,
             instantiate(
                 gpu, capture(gpu, ofGraph, [&] { gpu.expect(gpu.fillAsync(s.a, 1, kNodeBytes, ofGraph), "fill"); })),
             ofGraph);
      if (waits) {
        gpu.expect(gpu.streamSynchronize(ofGraph), "cuStreamSynchronize");
      }
      destroy(ofGraph);
      for (int i = 0; i < 300; i++) {
        const Stream other = gpu.stream();
        gpu.expect(gpu.fillAsync(s.b, 1, 1, other), "fill");
        gpu.expect(gpu.streamSynchronize(other), "cuStreamSynchronize");
        destroy(other);
      }
      gpu.expect(gpu.fillAsync(s.a, 2, kNodeBytes, s.second), "fill");
      gpu.expect(gpu.streamSynchronize(s.second), "cuStreamSynchronize");
    };
  };
  expectFine(program(true));
  expectReport("cuMemsetD8Async .*writes bytes of cuMemsetD8Async .node 1 of graph .* in cuGraphLaunch" +
                   std::string(kUnorderedInGraph),
               program(false));
}

TEST(SimulatedGraphOrder, AMissingWaitForALaunchIsFound) {
  const auto program = [](bool waits, bool isBefore) {
    return [=](Simulated& gpu) {
      const Streams s(gpu);
      const GraphExec executable = instantiate(gpu, capture(gpu, s.first, [&] {
                                                 gpu.expect(gpu.fillAsync(s.a, 1, kNodeBytes, s.first), "fill");
                                                 gpu.expect(gpu.fillAsync(s.b, 1, kNodeBytes, s.first), "fill");
                                               }));
      const auto work = [&] { gpu.expect(gpu.copyOnDeviceAsync(s.b, s.a, kNodeBytes, s.second), "copy"); };
      if (isBefore) {
        work();
        if (waits) {
          order(gpu, s.second, s.first);
        }
      }
      launch(gpu, executable, s.first);
      if (!isBefore) {
        if (waits) {
          order(gpu, s.first, s.second);
        }
        work();
      }
      gpu.expect(gpu.contextSynchronize(), "cuCtxSynchronize");
    };
  };
  const std::string report =
      "(cuMemsetD8Async .node . of graph .*bytes of cuMemcpyDtoDAsync|cuMemcpyDtoDAsync.*bytes of cuMemsetD8Async "
      ".node . of graph)" +
      std::string(kUnorderedInGraph);
  for (const bool isBefore : {true, false}) {
    expectFine(program(true, isBefore));
    expectReport(report, program(false, isBefore));
  }
}

// A stream that waits for the launch is ordered after the nodes, not only after the last ones.
TEST(SimulatedGraphOrder, TheHostOrdersWhatItHasWaitedFor) {
  const auto program = [](bool waits) {
    return [=](Simulated& gpu) {
      const Streams s(gpu);
      const GraphExec executable = instantiate(gpu, capture(gpu, s.first, [&] {
                                                 order(gpu, s.first, s.second);
                                                 gpu.expect(gpu.fillAsync(s.a, 1, kNodeBytes, s.first), "fill");
                                                 gpu.expect(gpu.fillAsync(s.b, 1, kNodeBytes, s.second), "fill");
                                                 order(gpu, s.second, s.first);
                                               }));
      launch(gpu, executable, s.first);
      if (waits) {
        gpu.expect(gpu.streamSynchronize(s.first), "cuStreamSynchronize");
      }
      gpu.expect(gpu.fillAsync(s.b, 2, kNodeBytes, s.second), "fill");
    };
  };
  expectFine(program(true));
  expectReport("cuMemsetD8Async" + std::string(kUnorderedInGraph), program(false));
}

// Launches of one executable graph on two streams have an order; those of two executable graphs have none.
TEST(SimulatedGraphOrder, LaunchesOfOneExecutableGraphAreOrdered) {
  const auto program = [](bool isOne) {
    return [=](Simulated& gpu) {
      const Streams s(gpu);
      const cuda::Graph graph = capture(gpu, s.first, [&] {
        gpu.expect(gpu.fillAsync(s.a, 1, kNodeBytes, s.first), "fill");
        gpu.expect(gpu.copyOnDeviceAsync(s.b, s.a, kNodeBytes, s.first), "copy");
      });
      const GraphExec executable = instantiate(gpu, graph);
      const GraphExec other = isOne ? executable : instantiate(gpu, graph);
      for (int i = 0; i < 3; i++) {
        launch(gpu, executable, s.first);
        launch(gpu, other, s.second);
      }
      gpu.expect(gpu.contextSynchronize(), "cuCtxSynchronize");
    };
  };
  expectFine(program(true));
  expectReport("bytes of (cuMemsetD8Async|cuMemcpyDtoDAsync) .node . of graph 1." + std::string(kUnorderedInGraph),
               program(false));
}

// A launch does not run before the one before it has ended, on whatever stream.
TEST(SimulatedGraphOrder, AStreamWithALaterLaunchWaits) {
  expectFine([](Simulated& gpu) {
    const Streams s(gpu);
    const cuda::Function twice = gpu.kernel(kTwice, "twice");
    const std::vector<float> ones(kNodeCount, 1);
    gpu.expect(gpu.copyToDevice(s.a, ones.data(), kNodeBytes), "copy");
    const GraphExec executable = instantiate(gpu, capture(gpu, s.first, [&] {
                                               gpu.launch(twice, 1, 64, TwiceArguments{s.a, s.b, kNodeCount}, s.first);
                                               gpu.expect(gpu.copyOnDeviceAsync(s.a, s.b, kNodeBytes, s.first), "copy");
                                             }));
    for (int i = 0; i < 4; i++) {
      launch(gpu, executable, i % 2 == 0 ? s.first : s.second);
    }
    gpu.expect(gpu.contextSynchronize(), "cuCtxSynchronize");
    float value = 0;
    gpu.expect(gpu.copyToHost(&value, s.a, sizeof value), "copy");
    require(value == 16, "four launches, one after the other");
  });
}

}  // namespace
}  // namespace meshfuse::graph_order
