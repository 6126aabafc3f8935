// Graphs on the simulated GPU: what a launch computes, how executable graphs change, and handles and addresses that are no longer valid.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "simgpu/captures.h"

namespace meshfuse::graphs {
namespace {

using cuda::DevicePointer;
using cuda::Graph;
using cuda::GraphExec;
using cuda::GraphNode;
using cuda::NodeType;
using cuda::Result;
using cuda::Stream;
using cuda::UpdateResult;

constexpr size_t kGraphCount = 128;
constexpr size_t kGraphBytes = kGraphCount * sizeof(float);

std::vector<float> valuesAt(Simulated& gpu, DevicePointer at, Stream stream) {
  std::vector<float> values(kGraphCount);
  gpu.expect(gpu.streamSynchronize(stream), "cuStreamSynchronize");
  gpu.expect(gpu.copyToHost(values.data(), at, kGraphBytes), "cuMemcpyDtoH");
  return values;
}

void put(Simulated& gpu, DevicePointer at, float value) {
  const std::vector<float> values(kGraphCount, value);
  gpu.expect(gpu.copyToDevice(at, values.data(), kGraphBytes), "cuMemcpyHtoD");
}

void expectAll(Simulated& gpu, DevicePointer at, Stream stream, float expected) {
  require(valuesAt(gpu, at, stream) == std::vector<float>(kGraphCount, expected), "the values of a buffer");
}

// x -> y = 2 x by a kernel, y -> z by a copy, and w is filled with zeros.
struct Program {
  explicit Program(Simulated& g)
      : gpu(g),
        twice(gpu.kernel(kTwice, "twice")),
        x(gpu.allocate(kGraphBytes)),
        y(gpu.allocate(kGraphBytes)),
        z(gpu.allocate(kGraphBytes)),
        w(gpu.allocate(kGraphBytes)),
        stream(gpu.stream()) {
    put(gpu, x, 1);
    gpu.expect(gpu.primaryContextRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  }
  void enqueue() { enqueue(x); }
  void enqueue(DevicePointer from) {
    gpu.launch(twice, 2, 64, TwiceArguments{from, y, kGraphCount}, stream);
    gpu.expect(gpu.copyOnDeviceAsync(z, y, kGraphBytes, stream), "cuMemcpyDtoDAsync");
    gpu.expect(gpu.fillAsync(w, 0, kGraphBytes, stream), "cuMemsetD8Async");
  }
  Graph graph() {
    return capture(gpu, stream, [&] { enqueue(); });
  }
  void launch(GraphExec executable) { gpu.expect(gpu.graphLaunch(executable, stream), "cuGraphLaunch"); }

  Simulated& gpu;
  cuda::Function twice;
  DevicePointer x, y, z, w;
  Stream stream;
  cuda::Context context = nullptr;
};

cuda::KernelNodeParameters kernelParameters(const Program& p, void** parameters) {
  return {.function = p.twice,
          .gridX = 2,
          .gridY = 1,
          .gridZ = 1,
          .blockX = 64,
          .blockY = 1,
          .blockZ = 1,
          .sharedBytes = 0,
          .parameters = parameters,
          .extra = nullptr,
          .kernel = nullptr,
          .context = nullptr};
}

cuda::CopyNodeParameters copyParameters(DevicePointer to, DevicePointer from, size_t bytes) {
  cuda::CopyNodeParameters p{};
  p.fromType = p.toType = cuda::MemoryType::Device;
  p.fromDevice = from;
  p.toDevice = to;
  p.width = bytes;
  p.height = p.depth = 1;
  return p;
}

cuda::FillNodeParameters fillParameters(DevicePointer to, unsigned value, size_t bytes) {
  return {.to = to, .pitch = 0, .value = value, .elementBytes = 1, .width = bytes, .height = 1};
}

TEST(SimulatedGraphs, DoTheirWorkAtEachLaunch) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const GraphExec executable = instantiate(gpu, p.graph());
    for (const float value : {3.F, 5.F}) {
      put(gpu, p.x, value);
      p.launch(executable);
      expectAll(gpu, p.z, p.stream, 2 * value);
      expectAll(gpu, p.w, p.stream, 0);
    }
  });
}

TEST(SimulatedGraphs, MayBeEmpty) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    p.launch(instantiate(gpu, capture(gpu, p.stream, [] {})));
    gpu.expect(gpu.streamSynchronize(p.stream), "cuStreamSynchronize");
  });
}

TEST(SimulatedGraphs, NameTheirNodes) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const std::vector<GraphNode> nodes = nodesOf(gpu, p.graph());
    std::vector<NodeType> types;
    for (const GraphNode node : nodes) {
      gpu.expect(gpu.graphNodeGetType(node, &types.emplace_back()), "cuGraphNodeGetType");
    }
    require(types == std::vector{NodeType::Kernel, NodeType::Copy, NodeType::Fill}, "the types");
    cuda::KernelNodeParameters parameters{};
    gpu.expect(gpu.graphKernelNodeGetParameters(nodes[0], &parameters), "cuGraphKernelNodeGetParams");
    require(parameters.function == p.twice && parameters.gridX == 2 && parameters.blockX == 64, "the launch");
    require(static_cast<TwiceArguments*>(parameters.parameters[0])->z == p.y, "the argument");
    expectResult(gpu.graphKernelNodeGetParameters(nodes[1], &parameters), Result::InvalidValue, "a copy");
  });
}

TEST(SimulatedGraphs, GiveAsManyNodesAsAreAskedFor) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const Graph graph = p.graph();
    GraphNode nodes[5] = {};
    size_t count = 2;
    gpu.expect(gpu.graphGetNodes(graph, nodes, &count), "cuGraphGetNodes");
    require(count == 2 && nodes[1] != nullptr && nodes[2] == nullptr, "two nodes");
    count = 5;
    gpu.expect(gpu.graphGetNodes(graph, nodes, &count), "cuGraphGetNodes");
    require(count == 3 && nodes[2] != nullptr && nodes[4] == nullptr, "three nodes");
  });
}

// -- new parameters ---------------------------------------------------------------------------------------------------

TEST(SimulatedGraphs, TakeParametersForLaterLaunches) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const DevicePointer other = gpu.allocate(kGraphBytes);
    const DevicePointer copied = gpu.allocate(kGraphBytes);
    put(gpu, other, 7);
    const Graph graph = p.graph();
    const std::vector<GraphNode> nodes = nodesOf(gpu, graph);
    const GraphExec executable = instantiate(gpu, graph);
    p.launch(executable);  // it may not have run when the parameters change
    TwiceArguments arguments{other, p.y, kGraphCount};
    void* parameters[] = {&arguments};
    const auto kernel = kernelParameters(p, parameters);
    gpu.expect(gpu.graphSetKernelNode(executable, nodes[0], &kernel), "cuGraphExecKernelNodeSetParams");
    const auto copy = copyParameters(copied, p.y, kGraphBytes);
    gpu.expect(gpu.graphSetCopyNode(executable, nodes[1], &copy, p.context), "cuGraphExecMemcpyNodeSetParams");
    const auto fill = fillParameters(p.x, 0, kGraphBytes);
    gpu.expect(gpu.graphSetFillNode(executable, nodes[2], &fill, p.context), "cuGraphExecMemsetNodeSetParams");
    expectAll(gpu, p.z, p.stream, 2);
    p.launch(executable);
    expectAll(gpu, copied, p.stream, 14);
    expectAll(gpu, p.z, p.stream, 2);
    expectAll(gpu, p.x, p.stream, 0);
    p.launch(instantiate(gpu, graph));  // the graph is as it was captured
    expectAll(gpu, p.z, p.stream, 0);
  });
}

TEST(SimulatedGraphs, RefuseParametersThatDoNotFit) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const Graph graph = p.graph();
    const std::vector<GraphNode> nodes = nodesOf(gpu, graph);
    const GraphExec executable = instantiate(gpu, graph);
    const auto copies = [&](const cuda::CopyNodeParameters& copy, GraphNode node) {
      return gpu.graphSetCopyNode(executable, node, &copy, p.context);
    };
    auto copy = copyParameters(p.z, p.y, kGraphBytes);
    expectResult(copies(copy, nodes[1]), Result::Success, "the same copy");
    expectResult(copies(copy, nodes[2]), Result::InvalidValue, "a copy in place of a fill");
    expectResult(copies(copy, nullptr), Result::InvalidValue, "no node");
    copy.height = 2;
    expectResult(copies(copy, nodes[1]), Result::InvalidValue, "a copy of two dimensions");
    copy = copyParameters(p.z, p.y, 0);
    expectResult(copies(copy, nodes[1]), Result::InvalidValue, "a copy of no bytes");
    copy = copyParameters(p.z, p.y, kGraphBytes);
    copy.fromType = cuda::MemoryType::Host;
    copy.fromHost = gpu.pinned(kGraphCount);
    expectResult(copies(copy, nodes[1]), Result::InvalidValue, "a copy from the host in place of one on the device");
    auto fill = fillParameters(p.w, 1, 0);
    expectResult(gpu.graphSetFillNode(executable, nodes[2], &fill, p.context), Result::InvalidValue, "no bytes");
    fill = fillParameters(p.w, 1, kGraphBytes);
    expectResult(gpu.graphSetFillNode(executable, nodes[2], &fill, p.context), Result::Success, "a fill");
    TwiceArguments arguments{p.x, p.y, kGraphCount};
    void* parameters[] = {&arguments};
    auto kernel = kernelParameters(p, parameters);
    expectResult(gpu.graphSetKernelNode(executable, nodes[1], &kernel), Result::InvalidValue, "a kernel for a copy");
    kernel.blockX = 2048;
    expectResult(gpu.graphSetKernelNode(executable, nodes[0], &kernel), Result::InvalidValue, "too many threads");
    const Graph another = p.graph();
    kernel.blockX = 64;
    expectResult(gpu.graphSetKernelNode(executable, nodesOf(gpu, another)[0], &kernel), Result::InvalidValue,
                 "a node of another graph");
  });
}

// Another size of a fill may be taken or not.
TEST(SimulatedGraphs, MayRefuseAnotherSizeOfAFill) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const Graph graph = p.graph();
    const GraphNode node = nodesOf(gpu, graph)[2];
    int taken = 0;
    int refused = 0;
    for (int i = 0; i < 40; i++) {
      const auto fill = fillParameters(p.w, 1, kGraphBytes / 2);
      (gpu.graphSetFillNode(instantiate(gpu, graph), node, &fill, p.context) == Result::Success ? taken : refused)++;
    }
    require(taken > 0 && refused > 0, "both happen");
  });
}

TEST(SimulatedGraphs, ReportNodesOfAGraphThatIsDestroyed) {
  const auto program = [](bool destroys) {
    return [=](Simulated& gpu) {
      Program p(gpu);
      const Graph graph = p.graph();
      const GraphNode node = nodesOf(gpu, graph)[2];
      const GraphExec executable = instantiate(gpu, graph);
      if (destroys) {
        gpu.expect(gpu.graphDestroy(graph), "cuGraphDestroy");
      }
      const auto fill = fillParameters(p.w, 1, kGraphBytes);
      gpu.expect(gpu.graphSetFillNode(executable, node, &fill, p.context), "cuGraphExecMemsetNodeSetParams");
      p.launch(executable);
    };
  };
  expectFine(program(false));
  expectReport("cuGraphExecMemsetNodeSetParams: the graph of the node.* has been destroyed", program(true));
}

// -- updates ----------------------------------------------------------------------------------------------------------

void expectUpdate(Simulated& gpu, GraphExec executable, Graph graph, UpdateResult expected, GraphNode node = nullptr,
                  GraphNode from = nullptr) {
  cuda::UpdateInfo info{};
  const bool succeeds = expected == UpdateResult::Success;
  expectResult(gpu.graphUpdate(executable, graph, &info), succeeds ? Result::Success : Result::GraphUpdateFailed,
               "update");
  require(info.result == expected, ("the result of the update: " + std::to_string(int(info.result))).c_str());
  require(info.node == node && info.from == from, "the node that cannot be updated");
}

TEST(SimulatedGraphs, AreUpdatedByAnotherCapture) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const DevicePointer other = gpu.allocate(kGraphBytes);
    put(gpu, other, 4);
    const GraphExec executable = instantiate(gpu, p.graph());
    const Graph second = capture(gpu, p.stream, [&] { p.enqueue(other); });
    p.launch(executable);
    expectUpdate(gpu, executable, second, UpdateResult::Success);
    gpu.expect(gpu.graphDestroy(second), "cuGraphDestroy");
    expectAll(gpu, p.z, p.stream, 2);
    p.launch(executable);
    expectAll(gpu, p.z, p.stream, 8);
  });
}

TEST(SimulatedGraphs, AreUpdatedOnlyBySuchOnes) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const Stream side = gpu.stream();
    const GraphExec executable = instantiate(gpu, p.graph());
    const auto last = [&](Graph graph) { return nodesOf(gpu, graph).back(); };
    const Graph longer = capture(gpu, p.stream, [&] {
      p.enqueue();
      gpu.expect(gpu.fillAsync(p.x, 0, 4, p.stream), "fill");
    });
    expectUpdate(gpu, executable, longer, UpdateResult::TopologyChanged);
    const Graph other = capture(gpu, p.stream, [&] {
      gpu.launch(p.twice, 2, 64, TwiceArguments{p.x, p.y, kGraphCount}, p.stream);
      gpu.expect(gpu.copyOnDeviceAsync(p.z, p.y, kGraphBytes, p.stream), "copy");
      gpu.expect(gpu.copyOnDeviceAsync(p.w, p.y, kGraphBytes, p.stream), "copy");
    });
    expectUpdate(gpu, executable, other, UpdateResult::NodeTypeChanged, last(other));
    const Graph forked = capture(gpu, p.stream, [&] {
      gpu.launch(p.twice, 2, 64, TwiceArguments{p.x, p.y, kGraphCount}, p.stream);
      order(gpu, p.stream, side);
      gpu.expect(gpu.copyOnDeviceAsync(p.z, p.y, kGraphBytes, p.stream), "copy");
      gpu.expect(gpu.fillAsync(p.w, 0, kGraphBytes, side), "fill");
      order(gpu, side, p.stream);
    });
    expectUpdate(gpu, executable, forked, UpdateResult::TopologyChanged, last(forked), nodesOf(gpu, forked)[0]);
    const Graph fromHost = capture(
        gpu, p.stream,
        [&] {
          gpu.launch(p.twice, 2, 64, TwiceArguments{p.x, p.y, kGraphCount}, p.stream);
          gpu.expect(gpu.copyToDeviceAsync(p.z, gpu.pinned(kGraphCount), kGraphBytes, p.stream), "copy");
          gpu.expect(gpu.fillAsync(p.w, 0, kGraphBytes, p.stream), "fill");
        },
        cuda::CaptureMode::Relaxed);
    expectUpdate(gpu, executable, fromHost, UpdateResult::ParametersChanged, nodesOf(gpu, fromHost)[1]);
    cuda::UpdateInfo info{};
    expectResult(gpu.graphUpdate(executable, nullptr, &info), Result::InvalidValue, "no graph");
    require(info.result == UpdateResult::Error, "an error");
    p.launch(executable);  // nothing has changed
    expectAll(gpu, p.z, p.stream, 2);
  });
}

TEST(SimulatedGraphs, KeepTheContextsOfTheirKernels) {
  setenv("SIMGPU_DEVICES", "2", 1);
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const Graph graph = p.graph();
    const GraphExec executable = instantiate(gpu, graph);
    cuda::Context context = nullptr;
    gpu.expect(gpu.primaryContextRetain(&context, 1), "cuDevicePrimaryCtxRetain");
    gpu.expect(gpu.contextPush(context), "cuCtxPushCurrent");
    const cuda::Function foreign = gpu.kernel(kTwice, "twice");
    TwiceArguments arguments{p.x, p.y, kGraphCount};
    void* parameters[] = {&arguments};
    auto kernel = kernelParameters(p, parameters);
    kernel.function = foreign;
    expectResult(gpu.graphSetKernelNode(executable, nodesOf(gpu, graph)[0], &kernel), Result::InvalidValue, "kernel");
    const Stream stream = gpu.stream();
    const Graph other = capture(gpu, stream, [&] {
      gpu.launch(foreign, 2, 64, arguments, stream);
      gpu.expect(gpu.copyOnDeviceAsync(p.z, p.y, kGraphBytes, stream), "cuMemcpyDtoDAsync");
      gpu.expect(gpu.fillAsync(p.w, 0, kGraphBytes, stream), "cuMemsetD8Async");
    });
    expectUpdate(gpu, executable, other, UpdateResult::FunctionChanged, nodesOf(gpu, other)[0]);
  });
  unsetenv("SIMGPU_DEVICES");
}

// -- instantiation, ends and stale addresses --------------------------------------------------------------------------

TEST(SimulatedGraphs, AreInstantiatedIfTheyAreGraphs) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    GraphExec executable = nullptr;
    expectResult(gpu.graphInstantiate(&executable, nullptr, 0), Result::InvalidValue, "no graph");
    const Graph graph = p.graph();
    constexpr unsigned long long kUpload = 2;
    constexpr unsigned long long kFreesAndLaunchesOnDevice = 5;
    for (const auto flags : {kUpload, kFreesAndLaunchesOnDevice, 16ULL}) {
      expectResult(gpu.graphInstantiate(&executable, graph, flags), Result::InvalidValue, "flags");
    }
    expectResult(gpu.graphLaunch(nullptr, p.stream), Result::InvalidValue, "no executable graph");
    expectResult(gpu.graphDestroy(nullptr), Result::InvalidValue, "no graph");
    expectResult(gpu.graphExecDestroy(nullptr), Result::InvalidValue, "no executable graph");
  });
}

TEST(SimulatedGraphs, FailToBeInstantiatedOnDemand) {
  setenv("SIMGPU_FAULT", "graph:2", 1);
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const Graph graph = p.graph();
    p.launch(instantiate(gpu, graph));
    GraphExec executable = nullptr;
    expectResult(gpu.graphInstantiate(&executable, graph, 0), Result::OutOfMemory, "the second instantiation");
    p.launch(instantiate(gpu, graph));
  });
  unsetenv("SIMGPU_FAULT");
}

TEST(SimulatedGraphs, EndWhenTheirLaunchesHave) {
  expectFine([](Simulated& gpu) {
    Program p(gpu);
    const Graph graph = p.graph();
    const GraphExec executable = instantiate(gpu, graph);
    gpu.expect(gpu.graphDestroy(graph), "cuGraphDestroy");
    p.launch(executable);
    gpu.expect(gpu.graphExecDestroy(executable), "cuGraphExecDestroy");
    expectAll(gpu, p.z, p.stream, 2);
  });
}

TEST(SimulatedGraphs, AreNotUsedAfterTheirEnd) {
  expectReport("cuGraphLaunch: the graph, executable graph or node has been destroyed", [](Simulated& gpu) {
    Program p(gpu);
    const GraphExec executable = instantiate(gpu, p.graph());
    gpu.expect(gpu.graphExecDestroy(executable), "cuGraphExecDestroy");
    p.launch(executable);
  });
  expectReport("cuGraphInstantiate: the graph, executable graph or node has been destroyed", [](Simulated& gpu) {
    Program p(gpu);
    const Graph graph = p.graph();
    gpu.expect(gpu.graphDestroy(graph), "cuGraphDestroy");
    instantiate(gpu, graph);
  });
}

// Memory that a node names is freed before a launch, or after it; or its address is that of another allocation by then.
TEST(SimulatedGraphs, DoNotHoldMemoryThatIsFreed) {
  const auto program = [](DevicePointer Program::*memory, bool isFreedBefore, bool isTakenAgain) {
    return [=](Simulated& gpu) {
      Program p(gpu);
      const GraphExec executable = instantiate(gpu, p.graph());
      if (isFreedBefore) {
        gpu.expect(gpu.memoryFree(p.*memory), "cuMemFree");
        require(!isTakenAgain || gpu.allocate(kGraphBytes) == p.*memory, "the address is given again");
      }
      p.launch(executable);
      gpu.expect(gpu.streamSynchronize(p.stream), "cuStreamSynchronize");
      if (!isFreedBefore) {
        gpu.expect(gpu.memoryFree(p.*memory), "cuMemFree");
      }
    };
  };
  const std::string stale = ".*holds an address in memory of cuMemAlloc of 512 bytes, which has been freed";
  expectFine(program(&Program::x, false, false));
  expectReport("cuGraphLaunch: cuLaunchKernelEx of twice .node 1 of graph ..:" + stale,
               program(&Program::x, true, false));
  expectReport("cuGraphLaunch: cuMemcpyDtoDAsync .node 2 of graph ..:" + stale, program(&Program::z, true, false));
  expectFine(program(&Program::z, true, true));
  expectReport("cuGraphLaunch: cuMemsetD8Async .node 3 of graph ..:" + stale, program(&Program::w, true, false));
}

}  // namespace
}  // namespace meshfuse::graphs
