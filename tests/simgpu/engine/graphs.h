// Graphs: the work that a program has captured, executable graphs, and their launches. Streams are not known here (captures.cc, launches.cc).
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "communicators.h"
#include "task.h"

namespace simgpu {

// Calls of one rank that are captured at once, those of a group or one.
struct CapturedCalls {
  uint64_t rank = 0;  // handle
  std::vector<std::shared_ptr<RankCall>> calls;
};

// An address among the parameters of a node, and the allocation in which it lay then.
struct HeldAddress {
  uint64_t address = 0;
  std::string allocation;
};

struct Node {
  uint64_t id = 0;
  std::string name;  // for reports: "cuMemsetD8Async (node 2 of graph 7)"
  uint32_t device = 0;
  Work work;
  std::vector<size_t> dependencies;  // places of other nodes in the graph
  std::vector<HeldAddress> held;
};

NodeType typeOf(const Node& node);
// A library has made it: its parameters are not the program's.
bool isOpaque(const Node& node);

struct Graph {
  uint64_t process = 0;
  bool isCaptured = false;  // to its end
  std::vector<Node> nodes;
};

struct ExecutableGraph {
  uint64_t process = 0;
  uint64_t graph = 0;             // from which it was instantiated
  std::vector<Node> nodes;        // as the next launch runs them
  std::vector<uint64_t> streams;  // of the nodes, for their order (order.h)
  uint64_t launches = 0;
  std::shared_ptr<const Operation> last;  // launch
};

// A launch. Nodes run in a random order among all that their dependencies allow.
struct GraphRun {
  using Time = std::chrono::steady_clock::time_point;
  struct Step {
    Task task;
    uint32_t device = 0;
    std::vector<size_t> dependencies;
    enum class State { Waits, Ready, Ended } state = State::Waits;
    Time due;
  };
  // When a step may go on; nothing if all of them wait for other devices.
  std::optional<Time> next() const;
  std::optional<Time> nextOf(const Step& step) const;

  uint64_t stream = 0;
  bool hasBegun = false;
  size_t ended = 0;
  std::vector<Step> steps;
  std::optional<size_t> failingStep;  // an error of the context comes of it
};

class Graphs {
 public:
  uint64_t create(uint64_t process);  // an empty graph, to be captured
  Graph* find(uint64_t graph);
  ExecutableGraph* findExecutable(uint64_t executable);
  // Null if its graph has been destroyed, or if it is none.
  const Node* findNode(uint64_t node) const;
  // Takes all of the node but its id. Returns its place.
  size_t add(uint64_t graph, Node node);
  // There was a graph, an executable graph or a node with this handle.
  bool isGone(uint64_t handle) const;

  // Statuses of CUDA
  int32_t destroy(uint64_t graph);
  int32_t instantiate(uint64_t graph, uint64_t process, uint64_t& executable);
  int32_t destroyExecutable(uint64_t executable);

  struct Update {
    GraphUpdateResult result = GraphUpdateResult::Success;
    uint64_t node = 0;  // that cannot be updated
    uint64_t from = 0;  // its dependency
  };
  // Takes the parameters of all nodes of the graph, or of none.
  Update update(ExecutableGraph& executable, const Graph& graph, std::mt19937_64& random) const;

  // The graphs of a process that has gone; says what it left.
  std::vector<std::string> forget(uint64_t process);

 private:
  static constexpr uint64_t kFirst = uint64_t{1} << 40;  // unlike all handles of streams and events

  std::map<uint64_t, Graph> graphs_;
  std::map<uint64_t, ExecutableGraph> executables_;
  std::map<uint64_t, std::pair<uint64_t, size_t>> nodes_;  // graph, place
  uint64_t lastHandle_ = kFirst;
};

// Whether a node with this work may have that in its place; Success if it may.
GraphUpdateResult changeOf(const Node& from, const Node& to, std::mt19937_64& random);

}  // namespace simgpu
