#include "graph_calls.h"

#include <cstring>
#include <vector>

namespace simgpu {

namespace {

using Kind = Work::Kind;

std::string bytesOf(const std::vector<uint64_t>& handles) {
  return {reinterpret_cast<const char*>(handles.data()), handles.size() * sizeof(uint64_t)};
}

std::string kernelOf(const Node& node) {
  return std::string(reinterpret_cast<const char*>(&node.work.shape), sizeof node.work.shape) + node.work.parameters;
}

Work kernelFrom(const std::string& payload) {
  Work work{.kind = Kind::Launch};
  std::memcpy(&work.shape, payload.data(), sizeof work.shape);
  work.parameters = payload.substr(sizeof work.shape);
  return work;
}

// A handle that was one is used: the real driver crashes, or takes another object.
void reportGone(Devices& devices, const Request& r) {
  for (const uint64_t handle : {r.a, r.b}) {
    if (devices.graphs().isGone(handle)) {
      devices.report(std::string(r.name) + ": the graph, executable graph or node has been destroyed");
    }
  }
}

}  // namespace

bool isGraphCall(Call call) { return call >= Call::CaptureBegin && call <= Call::GraphUpdate; }

Reply answerGraphCall(Devices& devices, const Request& r, const Caller& caller, const std::string& payload,
                      std::string& text) {
  Graphs& graphs = devices.graphs();
  Reply a;
  using enum Call;
  const bool sets = r.call == GraphSetKernel || r.call == GraphSetCopy || r.call == GraphSetFill;
  if (r.call >= GraphNodes && !(sets && graphs.findExecutable(r.a) != nullptr)) {
    reportGone(devices, r);
  }
  switch (r.call) {
    case CaptureBegin:
      a.status = devices.beginCapture(r, caller);
      break;
    case CaptureEnd:
      a.status = devices.endCapture(r, caller, a.value);
      break;
    case CaptureInfo: {
      const Devices::CaptureState state = devices.captureState(r.stream);
      a.status = devices.isStream(r.stream) ? kSuccess : kInvalidHandle;
      a.value = static_cast<uint64_t>(state.status);
      a.more = state.capture;
      text = bytesOf(state.handles);
      break;
    }
    case CaptureMode:
      a.value = static_cast<uint64_t>(devices.exchangeMode(caller, static_cast<ThreadCapture>(r.b)));
      break;
    case GraphNodes: {
      const Graph* const graph = graphs.find(r.a);
      a.status = graph == nullptr ? kInvalidValue : kSuccess;
      std::vector<uint64_t> nodes;
      for (size_t i = 0; graph != nullptr && i < graph->nodes.size(); i++) {
        nodes.push_back(graph->nodes[i].id);
      }
      text = bytesOf(nodes);
      break;
    }
    case GraphNodeType:
    case GraphNodeKernel: {
      const Node* const node = graphs.findNode(r.a);
      if (node == nullptr || (r.call == GraphNodeKernel && typeOf(*node) != NodeType::Kernel)) {
        a.status = kInvalidValue;
      } else if (r.call == GraphNodeType) {
        a.value = static_cast<uint64_t>(typeOf(*node));
      } else if (!isOpaque(*node)) {
        text = kernelOf(*node);
      }
      break;
    }
    case GraphDestroy: {
      const Graph* const graph = graphs.find(r.a);
      if (graph != nullptr && !graph->isCaptured) {
        devices.report(std::string(r.name) + ": the graph is being captured");
      }
      a.status = graphs.destroy(r.a);
      break;
    }
    case GraphInstantiate:
      a.status = graphs.instantiate(r.a, caller.process, a.value);
      break;
    case GraphExecDestroy:
      a.status = graphs.destroyExecutable(r.a);
      break;
    case GraphLaunch:
      a.status = devices.launchGraph(r, caller.process);
      break;
    case GraphSetKernel:
      a.status = devices.setNode(r, kernelFrom(payload));
      break;
    case GraphSetCopy: {
      NodeCopy copy;
      std::memcpy(&copy, payload.data(), sizeof copy);
      a.status = devices.setNode(r, {.kind = Kind::Copy, .to = copy.to, .from = copy.from, .bytes = copy.bytes});
      break;
    }
    case GraphSetFill: {
      NodeFill fill;
      std::memcpy(&fill, payload.data(), sizeof fill);
      a.status = devices.setNode(r, {.kind = Kind::Fill, .to = fill.to, .from = fill.value, .bytes = fill.bytes});
      break;
    }
    case GraphUpdate: {
      const Graphs::Update update = devices.updateGraph(r);
      a.status = update.result == GraphUpdateResult::Success ? kSuccess
                 : update.result == GraphUpdateResult::Error ? kInvalidValue
                                                             : kGraphUpdateFailed;
      a.value = static_cast<uint64_t>(update.result);
      text = bytesOf({update.node, update.from});
      break;
    }
    default:
      break;
  }
  return a;
}

}  // namespace simgpu
