// Captures: the calls on capturing streams become nodes of a graph, and calls that break a capture are refused.
//
// The rules are those of the CUDA documentation: "Prohibited and Unhandled Operations" and "Invalidation" of the programming guide,
// cuStreamBeginCapture, cuStreamEndCapture and cuThreadExchangeStreamCaptureMode. An operation that is not allowed makes the captures invalid with
// which it conflicts. Of the calls that are potentially unsafe the documentation names cudaMalloc alone. Here they are all calls that no stream
// orders: allocation and its end, synchronous copies, modules, and waits for or queries of streams and events that are not captured.
#include <algorithm>
#include <cstring>

#include "work.h"

namespace simgpu {

// -- what captures forbid ---------------------------------------------------------------------------------------------

int32_t Devices::invalidate(Capture& capture, int32_t status) {
  capture.isInvalid = true;
  return status;
}

int32_t Devices::captureRefusal(const Request& r, const Caller& caller) {
  switch (r.call) {
    case Call::StreamWait:
    case Call::StreamQuery:
      if (isCapturing(r.stream)) {
        Capture& c = *streams_.at(r.stream).capture;
        return c.isInvalid ? int32_t{kCaptureInvalidated} : invalidate(c, kCaptureUnsupported);
      }
      if (r.b != 0) {  // a part of another call
        return kSuccess;
      }
      break;
    case Call::EventWait:
    case Call::EventQuery:
      if (isEvent(r.a) && events_.at(r.a).capture != nullptr) {
        return invalidate(*events_.at(r.a).capture, kCapturedEvent);
      }
      break;
    case Call::DeviceWait: {
      int32_t status = kSuccess;
      for (const auto& [id, s] : streams_) {
        if (s.capture != nullptr && s.process == caller.process && s.device == r.device) {
          status = invalidate(*s.capture, kCaptureUnsupported);
        }
      }
      return status;
    }
    case Call::Allocate:
    case Call::Free:
      if (r.stream != kNow) {
        if (isCapturing(r.stream)) {
          reports_.push_back(std::string(r.name) + ": nodes that allocate or free memory are not simulated");
        }
        return kSuccess;
      }
      break;
    case Call::UnsafeCall:
      break;
    default:
      return kSuccess;
  }
  const auto set = modes_.find(caller.thread);
  const ThreadCapture mode = set == modes_.end() ? ThreadCapture::Global : set->second;
  int32_t status = kSuccess;
  for (const auto& [id, c] : captures_) {
    const bool isOwn = c->caller.thread == caller.thread;
    const bool forbids = isOwn ? c->mode != ThreadCapture::Relaxed
                               : mode == ThreadCapture::Global && c->mode == ThreadCapture::Global;
    if (c->caller.process == caller.process && mode != ThreadCapture::Relaxed && forbids) {
      status = invalidate(*c, kCaptureUnsupported);
    }
  }
  return status;
}

ThreadCapture Devices::exchangeMode(const Caller& caller, ThreadCapture mode) {
  ThreadCapture& own = modes_.try_emplace(caller.thread, ThreadCapture::Global).first->second;
  return std::exchange(own, mode);
}

// -- captures ---------------------------------------------------------------------------------------------------------

int32_t Devices::beginCapture(const Request& r, const Caller& caller) {
  const auto it = streams_.find(r.stream);
  if (it == streams_.end() || it->second.isDestroyed) {
    return kInvalidHandle;
  }
  Stream& s = it->second;
  if (s.capture != nullptr) {
    return invalidate(*s.capture, kInvalidValue);
  }
  const uint64_t id = ++lastCapture_;
  captures_[id] = std::make_shared<Capture>(Capture{.id = id,
                                                    .caller = caller,
                                                    .origin = r.stream,
                                                    .mode = static_cast<ThreadCapture>(r.b),
                                                    .graph = graphs_.create(caller.process)});
  s.capture = captures_.at(id);
  s.dependencies.clear();
  return kSuccess;
}

int32_t Devices::endCapture(const Request& r, const Caller& caller, uint64_t& graph) {
  const auto it = streams_.find(r.stream);
  if (it == streams_.end()) {
    return kInvalidHandle;
  }
  const std::shared_ptr<Capture> c = it->second.capture;
  if (c == nullptr) {
    return kCaptureUnmatched;
  }
  if (c->origin != r.stream) {
    return invalidate(*c, kCaptureUnmatched);
  }
  if (c->mode != ThreadCapture::Relaxed && c->caller.thread != caller.thread) {
    return invalidate(*c, kCaptureWrongThread);
  }
  Graph& made = *graphs_.find(c->graph);
  std::vector<bool> isJoined(made.nodes.size());
  std::vector<size_t> open = it->second.dependencies;
  while (!open.empty()) {
    const size_t node = open.back();
    open.pop_back();
    if (!isJoined[node]) {
      isJoined[node] = true;
      open.insert(open.end(), made.nodes[node].dependencies.begin(), made.nodes[node].dependencies.end());
    }
  }
  for (auto& [id, s] : streams_) {
    if (s.capture == c) {
      s.capture = nullptr;
    }
  }
  c->hasEnded = true;
  captures_.erase(c->id);
  const bool isWhole = std::ranges::all_of(isJoined, [](bool is) { return is; });
  if (c->isInvalid || !isWhole) {
    graphs_.destroy(c->graph);
    return c->isInvalid ? kCaptureInvalidated : kCaptureUnjoined;
  }
  made.isCaptured = true;
  graph = c->graph;
  return kSuccess;
}

Devices::CaptureState Devices::captureState(uint64_t stream) {
  CaptureState state;
  if (!isCapturing(stream)) {
    return state;
  }
  const Stream& s = streams_.at(stream);
  state.status = s.capture->isInvalid ? CaptureStatus::Invalidated : CaptureStatus::Active;
  state.capture = s.capture->id;
  state.handles = {s.capture->graph};
  for (const size_t node : s.dependencies) {
    state.handles.push_back(graphs_.find(s.capture->graph)->nodes[node].id);
  }
  return state;
}

// -- nodes ------------------------------------------------------------------------------------------------------------

std::vector<HeldAddress> Devices::addressesOf(const Work& w) const {
  std::vector<HeldAddress> held;
  const auto add = [&](uint64_t address) {
    const Memory* const memory = memoryOf(address);
    const Allocation* const owner = memory == nullptr ? nullptr : memory->owner(address);
    if (owner != nullptr) {
      held.push_back({.address = address, .allocation = owner->call});
    }
  };
  using enum Work::Kind;
  if (w.kind == Copy || w.kind == Fill) {
    add(w.to);
  }
  if (w.kind == Copy) {
    add(w.from);
  }
  if (w.kind == Product) {
    const MatrixProduct& p = w.product;
    std::ranges::for_each(std::vector{p.a.address, p.b.address, p.d.address, p.bias, p.workspace}, add);
    add(p.beta == 0 ? 0 : p.c.address);
  }
  if (w.kind == Collective) {
    for (const auto& c : w.captured->calls) {
      add(c->call.in);
      add(c->call.out);
    }
  }
  // The types of a kernel's parameters are not known: what looks like an address of memory is one.
  for (size_t at = 0; w.kind == Launch && at + sizeof(uint64_t) <= w.parameters.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, w.parameters.data() + at, sizeof word);
    add(word);
  }
  return held;
}

size_t Devices::addNode(Capture& c, uint32_t device, std::string name, Work work, std::vector<size_t> dependencies) {
  std::vector<HeldAddress> held = addressesOf(work);
  return graphs_.add(c.graph, {.name = std::move(name),
                               .device = device,
                               .work = std::move(work),
                               .dependencies = std::move(dependencies),
                               .held = std::move(held)});
}

int32_t Devices::capture(Stream& s, const Request& r, const std::string& name, Work work) {
  Capture& c = *s.capture;
  if (c.isInvalid) {
    return kCaptureInvalidated;
  }
  if (const std::string posting = communicators_.postingOn(r.stream); !posting.empty()) {
    reports_.push_back(name + ": is captured while " + posting +
                       " is in progress on the stream: wait for ncclSuccess before");
  }
  using enum Work::Kind;
  switch (work.kind) {
    case Record:
      if (!work.isExternal) {
        Event& event = events_.at(work.event);
        event = {.device = event.device, .measures = event.measures, .capture = s.capture, .nodes = s.dependencies};
        return kSuccess;
      }
      break;
    case Wait:  // for what is not captured
      return invalidate(c, kCaptureIsolation);
    case Graph:
      reports_.push_back(name + ": nodes that launch graphs are not simulated");
      return kSuccess;
    case Product:
      // The count of kernels is the library's affair.
      if ((work.product.d.rows + work.product.d.columns + options_.seed) % 2 == 0) {
        s.dependencies = {addNode(c, s.device, "a part of " + name, {.kind = Part}, s.dependencies)};
      }
      break;
    default:
      break;
  }
  s.dependencies = {addNode(c, s.device, name, std::move(work), s.dependencies)};
  return kSuccess;
}

// A stream waits for an event of a capture, and takes part in it from then on.
int32_t Devices::joinCapture(Stream& s, const Event& event, bool isLegacy) {
  Capture& other = *event.capture;
  if (s.capture != nullptr && s.capture->isInvalid) {
    return kCaptureInvalidated;
  }
  if (other.hasEnded) {
    return s.capture == nullptr ? int32_t{kCapturedEvent} : invalidate(*s.capture, kCapturedEvent);
  }
  if (s.capture != nullptr && s.capture != event.capture) {
    invalidate(*s.capture, kCaptureMerge);
    return invalidate(other, kCaptureMerge);
  }
  if (other.isInvalid) {
    return kCaptureInvalidated;
  }
  if (isLegacy) {
    return invalidate(other, kCaptureImplicit);
  }
  if (s.capture == nullptr) {
    s.capture = event.capture;
    s.dependencies.clear();
  }
  for (const size_t node : event.nodes) {
    if (std::ranges::find(s.dependencies, node) == s.dependencies.end()) {
      s.dependencies.push_back(node);
    }
  }
  return kSuccess;
}

int32_t Devices::captureCalls(const Request& r, const std::vector<CollectiveCall>& all) {
  const std::shared_ptr<Capture> c = streams_.at(all[0].stream).capture;
  for (const CollectiveCall& call : all) {
    if (streams_.at(call.stream).capture != c) {  // NCCL refuses groups that are captured in part
      communicators_.fail(r.a, kWrongUsage);
      return kWrongUsage;
    }
  }
  if (c->isInvalid) {
    communicators_.fail(r.a, kCudaFailed);
    return kCudaFailed;
  }
  const Communicators::Rank& rank = *communicators_.find(r.a);
  const auto captured = std::make_shared<CapturedCalls>();
  captured->rank = r.a;
  const auto posted = std::make_shared<Posted>();
  posted->rank = r.a;
  std::vector<size_t> dependencies;
  for (const CollectiveCall& one : all) {
    const auto call = std::make_shared<RankCall>();
    call->call = one;
    call->rank = rank.rank;
    call->ranks = rank.ranks;
    call->isCaptured = true;
    Communicators::findRegistered(rank, *call);
    if (const std::string difference = communicators_.place(r.a, call); !difference.empty()) {
      reports_.push_back(difference);
    }
    captured->calls.push_back(call);
    posted->calls.push_back(call);
    for (const size_t node : streams_.at(one.stream).dependencies) {
      if (std::ranges::find(dependencies, node) == dependencies.end()) {
        dependencies.push_back(node);
      }
    }
  }
  const std::string name = all.size() == 1 ? captured->calls[0]->name()
                                           : std::string(r.name) + " of rank " + std::to_string(rank.rank) + " of " +
                                                 std::to_string(rank.ranks);
  Work work{.kind = Work::Kind::Collective};
  work.captured = captured;
  const size_t node = addNode(*c, rank.device, name, std::move(work), std::move(dependencies));
  for (const CollectiveCall& call : all) {
    streams_.at(call.stream).dependencies = {node};
  }
  return communicators_.noteCaptured(r.a, posted, random_);
}

}  // namespace simgpu
