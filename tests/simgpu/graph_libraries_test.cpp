// Matrix products and collectives in graphs: their nodes are the libraries', and the ranks of a communicator launch graphs as they call NCCL.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "simgpu/captures.h"
#include "simgpu/collectives.h"
#include "simgpu/products.h"

namespace meshfuse::graph_libraries {
namespace {

using cuda::CaptureMode;
using cuda::DevicePointer;
using cuda::Graph;
using cuda::GraphExec;
using cuda::GraphNode;
using cuda::NodeType;
using cuda::Result;
using Values = std::vector<float>;

// -- products ---------------------------------------------------------------------------------------------------------

Graph captureOf(Multiplication& x, cuda::Stream stream) {
  return capture(
      x.gpu, stream, [&] { x.expectMultiplied(stream); }, CaptureMode::Relaxed);  // it allocates a workspace
}

TEST(SimulatedGraphProducts, RunAtEachLaunch) {
  expectFine([](Simulated& gpu) {
    for (const ProductShape& shape : {ProductShape{}, ProductShape{.n = 5}, kLargeProduct}) {
      Multiplication x(gpu, shape);
      const cuda::Stream stream = gpu.stream();
      const GraphExec executable = instantiate(gpu, captureOf(x, stream));
      for (int seed = 1; seed < 3; seed++) {
        x.write(x.a, seed);
        gpu.expect(gpu.graphLaunch(executable, stream), "cuGraphLaunch");
        gpu.expect(gpu.streamSynchronize(stream), "cuStreamSynchronize");
      }
      x.write(x.a, 1);
      gpu.expect(gpu.graphLaunch(executable, stream), "cuGraphLaunch");
      gpu.expect(gpu.streamSynchronize(stream), "cuStreamSynchronize");
      x.expectRight();
    }
  });
}

// How many kernels a product has depends on its shape.
TEST(SimulatedGraphProducts, HaveOneKernelOrSeveral) {
  expectFine([](Simulated& gpu) {
    const cuda::Stream stream = gpu.stream();
    size_t counts[2] = {};
    for (const size_t columns : {4, 5}) {
      Multiplication x(gpu, {.n = columns});
      const Graph graph = captureOf(x, stream);
      for (const GraphNode node : nodesOf(gpu, graph)) {
        NodeType type{};
        gpu.expect(gpu.graphNodeGetType(node, &type), "cuGraphNodeGetType");
        require(type == NodeType::Kernel, "a kernel");
      }
      counts[columns - 4] = nodesOf(gpu, graph).size();
    }
    require(counts[0] + counts[1] == 3, "one shape has one kernel, the other two");
  });
}

TEST(SimulatedGraphProducts, AreUpdatedByAnotherCapture) {
  expectFine([](Simulated& gpu) {
    Multiplication x(gpu, {});
    Multiplication y(gpu, {.alpha = 3});
    const cuda::Stream stream = gpu.stream();
    const GraphExec executable = instantiate(gpu, captureOf(x, stream));
    cuda::UpdateInfo info{};
    gpu.expect(gpu.graphUpdate(executable, captureOf(y, stream), &info), "cuGraphExecUpdate");
    gpu.expect(gpu.graphLaunch(executable, stream), "cuGraphLaunch");
    gpu.expect(gpu.streamSynchronize(stream), "cuStreamSynchronize");
    y.expectRight();
  });
}

TEST(SimulatedGraphProducts, KeepTheirParameters) {
  const auto program = [](bool ofLibrary) {
    return [=](Simulated& gpu) {
      const cuda::Function own = gpu.kernel(kTwice, "twice");
      const DevicePointer memory = gpu.allocate(64);
      Multiplication x(gpu, {});
      const cuda::Stream stream = gpu.stream();
      const Graph graph = capture(
          gpu, stream,
          [&] {
            gpu.launch(own, 1, 64, TwiceArguments{memory, memory, 0}, stream);
            x.expectMultiplied(stream);
          },
          CaptureMode::Relaxed);
      const std::vector<GraphNode> nodes = nodesOf(gpu, graph);
      const GraphExec executable = instantiate(gpu, graph);
      cuda::KernelNodeParameters parameters{};
      gpu.expect(gpu.graphKernelNodeGetParameters(nodes[0], &parameters), "cuGraphKernelNodeGetParams");
      cuda::KernelNodeParameters theirs{};
      gpu.expect(gpu.graphKernelNodeGetParameters(nodes.back(), &theirs), "cuGraphKernelNodeGetParams");
      require(parameters.function == own && theirs.function != own && theirs.function != nullptr, "functions");
      gpu.expect(gpu.graphSetKernelNode(executable, ofLibrary ? nodes.back() : nodes[0], &parameters), "set");
    };
  };
  expectFine(program(false));
  expectReport("cuGraphExecKernelNodeSetParams: cublasLtMatmul to 3 by 4 .node . of graph 1. is a library's",
               program(true));
}

// -- collectives ------------------------------------------------------------------------------------------------------

class SimulatedGraphCollectives : public CollectiveTest {};

// Threads with a device each capture beside one another.
Graph captureOf(Rank& rank, const std::function<void()>& program) {
  return capture(rank.gpu, rank.stream, program, CaptureMode::ThreadLocal);
}

void launch(Rank& rank, GraphExec executable) {
  rank.gpu.expect(rank.gpu.graphLaunch(executable, rank.stream), "cuGraphLaunch");
}

TEST_F(SimulatedGraphCollectives, RunAtEachLaunch) {
  for (const bool isBlocking : {true, false}) {
    expectFine(onRanks(3,
                       [](Rank& rank) {
                         const DevicePointer x = rank.buffer(Values{1, 2});
                         const DevicePointer sum = rank.buffer(Values{0, 0});
                         const Graph graph =
                             captureOf(rank, [&] { rank.expect(rank.allReduce(x, sum, 2), "ncclAllReduce"); });
                         const GraphExec executable = instantiate(rank.gpu, graph);
                         rank.synchronize();
                         require(rank.values<float>(sum, 2) == Values{0, 0}, "a captured call does not run");
                         for (float i = 1; i < 4; i++) {
                           rank.put(x, Values{i, static_cast<float>(rank.number)});
                           launch(rank, executable);
                           require(rank.values<float>(sum, 2) == Values{3 * i, 3}, "the sum of the ranks");
                           rank.expect(rank.allReduce(sum, sum, 2), "ncclAllReduce");  // and calls between launches
                           require(rank.values<float>(sum, 2) == Values{9 * i, 9}, "the sum of the sums");
                         }
                       },
                       {.isBlocking = isBlocking}));
  }
}

TEST_F(SimulatedGraphCollectives, TransfersOfAGroupAreOneNode) {
  expectFine(onRanks(2, [](Rank& rank) {
    const int peer = 1 - rank.number;
    const DevicePointer own = rank.buffer(Values{static_cast<float>(rank.number)});
    const DevicePointer got = rank.buffer(Values{7});
    const Graph graph = captureOf(rank, [&] {
      rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
      rank.expect(rank.send(own, 1, peer), "ncclSend");
      rank.expect(rank.receive(got, 1, peer), "ncclRecv");
      rank.expect(rank.nccl.groupEnd(), "ncclGroupEnd");
    });
    require(nodesOf(rank.gpu, graph).size() == 1, "one node");
    NodeType type{};
    rank.gpu.expect(rank.gpu.graphNodeGetType(nodesOf(rank.gpu, graph)[0], &type), "cuGraphNodeGetType");
    require(type == NodeType::Kernel, "a kernel");
    const GraphExec executable = instantiate(rank.gpu, graph);
    for (int i = 0; i < 2; i++) {
      launch(rank, executable);
      require(rank.values<float>(got, 1) == Values{static_cast<float>(peer)}, "the element of the peer");
    }
  }));
}

// Whether a call is captured must be the same on all ranks.
TEST_F(SimulatedGraphCollectives, ACallThatOneRankCapturesIsFound) {
  expectReport("ncclAllReduce of rank 0 of 2 is captured and ncclAllReduce of rank 1 of 2 is not",
               onRanks(2, [](Rank& rank) {
                 const DevicePointer x = rank.buffer(Values{1});
                 if (rank.number == 0) {
                   captureOf(rank, [&] { rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce"); });
                 } else {
                   rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
                 }
                 rank.synchronize();
               }));
}

// A launch counts as the calls of the graph. Each rank must launch the graph of the same capture, in the same place.
TEST_F(SimulatedGraphCollectives, LaunchesInAnotherOrderAreFound) {
  const auto program = [](bool launchesFirst, bool callsBetween) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(Values{1});
      std::vector<GraphExec> executables;
      for (int i = 0; i < 2; i++) {
        const Graph graph = captureOf(rank, [&] { rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce"); });
        executables.push_back(instantiate(rank.gpu, graph));
      }
      const size_t first = launchesFirst && rank.number == 1 ? 1 : 0;
      if (callsBetween && rank.number == 1) {
        rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
      }
      launch(rank, executables[first]);
      launch(rank, executables[1 - first]);
      if (callsBetween && rank.number == 0) {
        rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
      }
      rank.synchronize();
    });
  };
  expectFine(program(false, false));
  expectReport("are calls of graphs, but not of one capture", program(true, false));
  expectReport("is a call of a graph and ncclAllReduce of rank . of 2 is not", program(false, true));
}

TEST_F(SimulatedGraphCollectives, OfPartOfAGroupIsRefused) {
  expectFine(onRanks(1, [](Rank& rank) {
    rank.options.isDestroyed = false;
    const DevicePointer x = rank.buffer(Values{1, 2});
    const cuda::Stream other = rank.gpu.stream();
    begin(rank.gpu, rank.stream, CaptureMode::Relaxed);
    rank.expect(rank.nccl.groupStart(), "ncclGroupStart");
    rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
    rank.expect(rank.nccl.allReduce(bufferAt(x + 4), bufferAt(x + 4), 1, nccl::ElementType::Float,
                                    nccl::ReduceOperation::Sum, rank.communicator, other),
                "ncclAllReduce");
    require(rank.nccl.groupEnd() == nccl::Result::InvalidUsage, "ncclGroupEnd refuses streams that capture in part");
    Graph graph = nullptr;
    rank.gpu.expect(rank.gpu.streamEndCapture(rank.stream, &graph), "cuStreamEndCapture");
  }));
}

// A launch uses the memory as it was registered at the capture.
TEST_F(SimulatedGraphCollectives, OfMemoryThatIsRegisteredNoMoreAreFound) {
  const auto program = [](bool isRegistered) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(Values{1});
      void* handle = nullptr;
      rank.expect(rank.nccl.memoryRegister(rank.communicator, bufferAt(x), 4, &handle), "ncclCommRegister");
      const GraphExec executable =
          instantiate(rank.gpu, captureOf(rank, [&] { rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce"); }));
      if (!isRegistered) {
        rank.expect(rank.nccl.memoryDeregister(rank.communicator, handle), "ncclCommDeregister");
      }
      launch(rank, executable);
      rank.synchronize();
    });
  };
  expectFine(program(true));
  expectReport("was captured with its operand at offset 0 of registered memory, and now it is not in registered memory",
               program(false));
}

// A kernel beside the collective touches its buffer.
TEST_F(SimulatedGraphCollectives, AMissingEdgeIsFound) {
  const auto program = [](bool isOrdered) {
    return onRanks(2, [=](Rank& rank) {
      const DevicePointer x = rank.buffer(Values{1});
      const cuda::Stream side = rank.gpu.stream();
      const Graph graph = captureOf(rank, [&] {
        order(rank.gpu, rank.stream, side);
        rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
        if (isOrdered) {
          order(rank.gpu, rank.stream, side);
        }
        rank.gpu.expect(rank.gpu.fillAsync(x, 0, 4, side), "cuMemsetD8Async");
        order(rank.gpu, side, rank.stream);
      });
      launch(rank, instantiate(rank.gpu, graph));
      rank.synchronize();
    });
  };
  expectFine(program(true));
  expectReport(
      "(ncclAllReduce of rank . of 2 in ncclAllReduce.* bytes of cuMemsetD8Async|cuMemsetD8Async.* bytes of "
      "ncclAllReduce).*"
      "nothing orders the two",
      program(false));
}

// The work of one rank before its collective is ordered before the work of the others after theirs, across graphs.
TEST_F(SimulatedGraphCollectives, OrderTheWorkOfAllRanks) {
  expectFine(onRanks(2, [](Rank& rank) {
    static DevicePointer shared = 0;
    const DevicePointer x = rank.buffer(Values{1});
    if (rank.number == 0) {
      shared = rank.buffer(Values{1});
    }
    rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
    rank.synchronize();
    const Graph graph = captureOf(rank, [&] {
      if (rank.number == 0) {
        rank.gpu.expect(rank.gpu.fillAsync(shared, 0, 4, rank.stream), "cuMemsetD8Async");
      }
      rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
      if (rank.number == 1) {
        rank.gpu.expect(rank.gpu.copyOnDeviceAsync(x, shared, 4, rank.stream), "cuMemcpyDtoDAsync");
      }
      rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
    });
    const GraphExec executable = instantiate(rank.gpu, graph);
    for (int i = 0; i < 3; i++) {
      launch(rank, executable);
    }
    rank.synchronize();
  }));
}

TEST_F(SimulatedGraphCollectives, HangUntilTheirAbort) {
  expectFine(onRanks(
      2,
      [](Rank& rank) {
        rank.options.isDestroyed = false;
        const DevicePointer x = rank.buffer(Values{1});
        const Graph graph = captureOf(rank, [&] { rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce"); });
        if (rank.number == 0) {
          launch(rank, instantiate(rank.gpu, graph));
          for (int i = 0; i < 20; i++) {
            expectResult(rank.gpu.streamQuery(rank.stream), Result::NotReady, "a launch whose peer does not come");
          }
        }
        rank.expect(rank.nccl.abort(rank.communicator), "ncclCommAbort");
        rank.synchronize();
      },
      {.isBlocking = false}));
}

TEST_F(SimulatedGraphCollectives, KeepTheirParameters) {
  expectReport("cuGraphExecKernelNodeSetParams: ncclAllReduce of rank 0 of 1 .node 2 of graph 1. is a library's",
               onRanks(1, [](Rank& rank) {
                 rank.options.isDestroyed = false;
                 const cuda::Function own = rank.gpu.kernel(kTwice, "twice");
                 const DevicePointer x = rank.buffer(Values{1});
                 const Graph graph = captureOf(rank, [&] {
                   rank.gpu.launch(own, 1, 64, TwiceArguments{x, x, 0}, rank.stream);
                   rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce");
                 });
                 const std::vector<GraphNode> nodes = nodesOf(rank.gpu, graph);
                 cuda::KernelNodeParameters parameters{};
                 rank.gpu.expect(rank.gpu.graphKernelNodeGetParameters(nodes[0], &parameters),
                                 "cuGraphKernelNodeGetParams");
                 rank.gpu.graphSetKernelNode(instantiate(rank.gpu, graph), nodes[1], &parameters);
               }));
}

TEST_F(SimulatedGraphCollectives, AreNotLaunchedAfterTheirCommunicator) {
  expectReport("ncclAllReduce of rank 0 of 1 .node 1 of graph.*: the communicator has been destroyed or aborted",
               onRanks(1, [](Rank& rank) {
                 rank.options.isDestroyed = false;
                 const DevicePointer x = rank.buffer(Values{1});
                 const Graph graph = captureOf(rank, [&] { rank.expect(rank.allReduce(x, x, 1), "ncclAllReduce"); });
                 rank.expect(rank.nccl.destroy(rank.communicator), "ncclCommDestroy");
                 launch(rank, instantiate(rank.gpu, graph));
               }));
}

}  // namespace
}  // namespace meshfuse::graph_libraries
