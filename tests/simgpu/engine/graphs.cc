#include "graphs.h"

#include <algorithm>
#include <utility>

#include "order.h"

namespace simgpu {

namespace {

using Kind = Work::Kind;

std::string numberOf(uint64_t handle, uint64_t first) { return std::to_string(handle - first); }

// Where an address lies: a device, or pinned memory.
uint64_t placeOf(uint64_t address) {
  return isDeviceAddress(address) ? (address - kDeviceBase) / kDeviceStride : kMostDevices;
}

}  // namespace

NodeType typeOf(const Node& node) {
  return node.work.kind == Kind::Copy   ? NodeType::Copy
         : node.work.kind == Kind::Fill   ? NodeType::Fill
         : node.work.kind == Kind::Record ? NodeType::Record
                                          : NodeType::Kernel;
}

bool isOpaque(const Node& node) {
  return node.work.kind == Kind::Product || node.work.kind == Kind::Part || node.work.kind == Kind::Collective;
}

// -- launches ---------------------------------------------------------------------------------------------------------

std::optional<GraphRun::Time> GraphRun::nextOf(const Step& step) const {
  if (step.state != Step::State::Ready) {
    return std::nullopt;
  }
  const Task& task = step.task;
  return task.work.kind == Kind::Collective ? task.work.posted->next(task.operation->stream, step.due) : step.due;
}

std::optional<GraphRun::Time> GraphRun::next() const {
  std::optional<Time> first;
  for (const Step& step : steps) {
    const std::optional<Time> due = nextOf(step);
    if (due && (!first || *due < *first)) {
      first = due;
    }
  }
  return first;
}

// -- graphs -----------------------------------------------------------------------------------------------------------

uint64_t Graphs::create(uint64_t process) {
  graphs_[++lastHandle_].process = process;
  return lastHandle_;
}

Graph* Graphs::find(uint64_t graph) {
  const auto it = graphs_.find(graph);
  return it == graphs_.end() ? nullptr : &it->second;
}

ExecutableGraph* Graphs::findExecutable(uint64_t executable) {
  const auto it = executables_.find(executable);
  return it == executables_.end() ? nullptr : &it->second;
}

const Node* Graphs::findNode(uint64_t node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &graphs_.at(it->second.first).nodes[it->second.second];
}

size_t Graphs::add(uint64_t graph, Node node) {
  Graph& g = graphs_.at(graph);
  const size_t place = g.nodes.size();
  node.id = ++lastHandle_;
  node.name += " (node " + std::to_string(place + 1) + " of graph " + numberOf(graph, kFirst) + ")";
  nodes_[node.id] = {graph, place};
  g.nodes.push_back(std::move(node));
  return place;
}

bool Graphs::isGone(uint64_t handle) const {
  return handle > kFirst && handle <= lastHandle_ && !graphs_.contains(handle) && !executables_.contains(handle) &&
         !nodes_.contains(handle);
}

int32_t Graphs::destroy(uint64_t graph) {
  const auto it = graphs_.find(graph);
  if (it == graphs_.end()) {
    return kInvalidValue;
  }
  for (const Node& node : it->second.nodes) {
    nodes_.erase(node.id);
  }
  graphs_.erase(it);
  return kSuccess;
}

int32_t Graphs::instantiate(uint64_t graph, uint64_t process, uint64_t& executable) {
  const Graph* const g = find(graph);
  if (g == nullptr || !g->isCaptured) {
    return kInvalidValue;
  }
  executable = ++lastHandle_;
  ExecutableGraph& made = executables_[executable];
  made = {.process = process, .graph = graph, .nodes = g->nodes};
  for (size_t i = 0; i < g->nodes.size(); i++) {
    made.streams.push_back(++lastHandle_);
  }
  return kSuccess;
}

int32_t Graphs::destroyExecutable(uint64_t executable) {
  return executables_.erase(executable) == 1 ? kSuccess : kInvalidValue;
}

GraphUpdateResult changeOf(const Node& from, const Node& to, std::mt19937_64& random) {
  using enum GraphUpdateResult;
  const NodeType type = typeOf(from);
  if (type != typeOf(to)) {
    return NodeTypeChanged;
  }
  if (type == NodeType::Kernel) {
    const bool isCall = from.work.kind == Kind::Collective;
    return from.device != to.device || isCall != (to.work.kind == Kind::Collective) ? FunctionChanged : Success;
  }
  if (placeOf(from.work.to) != placeOf(to.work.to) ||
      (type == NodeType::Copy && placeOf(from.work.from) != placeOf(to.work.from))) {
    return ParametersChanged;
  }
  // Another size of a fill is taken if the work fits what has been allocated for the node, the documentation says.
  return type == NodeType::Fill && from.work.bytes != to.work.bytes && random() % 2 == 0 ? ParametersChanged : Success;
}

Graphs::Update Graphs::update(ExecutableGraph& executable, const Graph& graph, std::mt19937_64& random) const {
  using enum GraphUpdateResult;
  if (!graph.isCaptured) {
    return {.result = Error};
  }
  if (executable.nodes.size() != graph.nodes.size()) {
    return {.result = TopologyChanged};
  }
  for (size_t i = 0; i < graph.nodes.size(); i++) {
    const Node& from = executable.nodes[i];
    const Node& to = graph.nodes[i];
    if (from.dependencies.size() != to.dependencies.size()) {
      return {.result = TopologyChanged, .node = to.id};
    }
    const auto [own, other] = std::ranges::mismatch(from.dependencies, to.dependencies);
    if (own != from.dependencies.end()) {
      return {.result = TopologyChanged, .node = to.id, .from = graph.nodes[*other].id};
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); i++) {
    if (const auto result = changeOf(executable.nodes[i], graph.nodes[i], random); result != Success) {
      return {.result = result, .node = graph.nodes[i].id};
    }
  }
  for (size_t i = 0; i < graph.nodes.size(); i++) {
    const uint64_t id = executable.nodes[i].id;
    executable.nodes[i] = graph.nodes[i];
    executable.nodes[i].id = id;
  }
  return {};
}

std::vector<std::string> Graphs::forget(uint64_t process) {
  std::vector<std::string> left;
  std::vector<uint64_t> own;
  for (const auto& [id, g] : graphs_) {
    if (g.process == process) {
      own.push_back(id);
      left.push_back("graph " + numberOf(id, kFirst));
    }
  }
  std::ranges::for_each(own, [&](uint64_t id) { destroy(id); });
  for (auto it = executables_.begin(); it != executables_.end();) {
    if (it->second.process == process) {
      left.push_back("an executable graph of graph " + numberOf(it->second.graph, kFirst));
      it = executables_.erase(it);
    } else {
      ++it;
    }
  }
  return left;
}

}  // namespace simgpu
