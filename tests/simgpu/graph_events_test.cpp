// Events that a graph records: the host and other streams wait for a point within a launch.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "simgpu/captures.h"

namespace meshfuse::graph_events {
namespace {

using cuda::DevicePointer;
using cuda::Event;
using cuda::Graph;
using cuda::GraphExec;
using cuda::NodeType;
using cuda::Result;
using cuda::Stream;

constexpr size_t kEventBytes = 64;

// A graph that fills `a`, records the event, and fills `b`.
struct Recorded {
  explicit Recorded(Simulated& gpu)
      : a(gpu.allocate(kEventBytes)),
        b(gpu.allocate(kEventBytes)),
        stream(gpu.stream()),
        other(gpu.stream()),
        event(gpu.event()),
        graph(capture(gpu, stream,
                      [&] {
                        fill(gpu, a, stream);
                        gpu.expect(gpu.eventRecordWithFlags(event, stream, cuda::kExternalRecord), "record");
                        fill(gpu, b, stream);
                      })),
        executable(instantiate(gpu, graph)) {}

  void launch(Simulated& gpu) const { gpu.expect(gpu.graphLaunch(executable, stream), "cuGraphLaunch"); }
  static void fill(Simulated& gpu, DevicePointer memory, Stream stream) {
    gpu.expect(gpu.fillAsync(memory, 1, kEventBytes, stream), "cuMemsetD8Async");
  }

  DevicePointer a, b;
  Stream stream;
  Stream other;
  Event event;
  Graph graph;
  GraphExec executable;
};

TEST(SimulatedGraphEvents, AreNodes) {
  expectFine([](Simulated& gpu) {
    const Recorded r(gpu);
    const std::vector<cuda::GraphNode> nodes = nodesOf(gpu, r.graph);
    require(nodes.size() == 3, "three nodes");
    NodeType type{};
    gpu.expect(gpu.graphNodeGetType(nodes[1], &type), "cuGraphNodeGetType");
    require(type == NodeType::EventRecord, "a record of an event");
  });
}

TEST(SimulatedGraphEvents, AreNotRecordedByTheCapture) {
  expectFine([](Simulated& gpu) {
    const Recorded r(gpu);
    expectResult(gpu.eventQuery(r.event), Result::Success, "an event that nothing has recorded");
    gpu.expect(gpu.streamWaitEvent(r.other, r.event, 0), "no event of a capture");
  });
}

TEST(SimulatedGraphEvents, NeedACapture) {
  expectFine([](Simulated& gpu) {
    const Recorded r(gpu);
    expectResult(gpu.eventRecordWithFlags(r.event, r.stream, cuda::kExternalRecord), Result::InvalidValue,
                 "no capture");
    expectResult(gpu.eventRecordWithFlags(r.event, r.stream, 2), Result::InvalidValue, "unknown flags");
    gpu.expect(gpu.eventRecordWithFlags(r.event, r.stream, 0), "no flags");
  });
}

// Each launch records the event anew: it has not ended until the nodes before it have.
TEST(SimulatedGraphEvents, TellTheHostWhatHasEnded) {
  expectFine([](Simulated& gpu) {
    const Recorded r(gpu);
    int timesLeft = 0;
    for (int i = 0; i < 20; i++) {
      r.launch(gpu);
      timesLeft += gpu.eventQuery(r.event) == Result::NotReady ? 1 : 0;
      gpu.expect(gpu.eventSynchronize(r.event), "cuEventSynchronize");
      Recorded::fill(gpu, r.a, r.other);  // ordered by the host
      gpu.expect(gpu.contextSynchronize(), "cuCtxSynchronize");
      expectResult(gpu.eventQuery(r.event), Result::Success, "all has ended");
    }
    require(timesLeft > 0, "at times the event has not ended after the call");
  });
}

TEST(SimulatedGraphEvents, OrderWhatWaitsForThem) {
  const auto program = [](bool waits, bool isBefore) {
    return [=](Simulated& gpu) {
      const Recorded r(gpu);
      for (int i = 0; i < 2; i++) {
        r.launch(gpu);
        if (waits) {
          gpu.expect(gpu.streamWaitEvent(r.other, r.event, 0), "cuStreamWaitEvent");
        }
        Recorded::fill(gpu, isBefore ? r.a : r.b, r.other);
        gpu.expect(gpu.contextSynchronize(), "cuCtxSynchronize");
      }
    };
  };
  expectFine(program(true, true));
  expectReport("nothing orders the two", program(false, true));
  expectReport("nothing orders the two", program(true, false));  // the launch goes on after the event
}

TEST(SimulatedGraphEvents, OutliveTheLaunches) {
  const auto program = [](bool isGone) {
    return [=](Simulated& gpu) {
      const Recorded r(gpu);
      if (isGone) {
        gpu.expect(gpu.eventDestroy(r.event), "cuEventDestroy");
      }
      r.launch(gpu);
      gpu.expect(gpu.streamSynchronize(r.stream), "cuStreamSynchronize");
    };
  };
  expectFine(program(false));
  expectReport("cuEventRecordWithFlags .node 2 of graph 1. records an event that has been destroyed", program(true));
}

}  // namespace
}  // namespace meshfuse::graph_events
