// The calls of communicators as work on streams: when they may run, which bytes they touch, and what is ordered after them.
//
// A rank's operation begins when all work before it in its streams has ended. Once all ranks of a call have begun, the engine reads what they
// send. Each rank writes what it receives after a delay of its own, and its streams go on.
//
//   before the operation of rank i   the work before it in its own streams
//   after it                         that, and the work before the operations of all ranks whose elements the result of rank i depends on
//
// So nothing orders the root of a broadcast after the receivers, nor the sender of a transfer after the receiver; NVIDIA's documentation does
// not say that they wait.
#include <algorithm>
#include <cstring>

#include "reduction.h"
#include "work.h"

namespace simgpu {

namespace {

using enum Collective;

// Whether what `rank` receives depends on what `other` sends.
bool dependsOn(const CollectiveCall& c, int rank, int other) {
  if (c.count == 0) {
    return false;
  }
  switch (c.kind) {
    case AllReduce:
    case AllGather:
    case ReduceScatter:
      return true;
    case Broadcast:
      return other == c.root;
    case Reduce:
      return rank == c.root;
    case Receive:
      return true;
    case Send:
    case Split:
      return false;
  }
  return false;
}

std::string_view bytesAt(uint64_t address, uint64_t bytes) { return {reinterpret_cast<const char*>(address), bytes}; }

// What each call of the exchange writes.
void computeResults(const std::vector<std::shared_ptr<RankCall>>& calls) {
  const CollectiveCall& first = calls[0]->call;
  std::vector<std::string_view> sent;
  std::string all;
  for (const auto& c : calls) {
    sent.push_back(bytesAt(c->call.in, c->call.inBytes));
  }
  switch (first.kind) {
    case AllReduce:
    case Reduce:
    case ReduceScatter:
      all = reduce(first.type, first.operation, sent);
      break;
    case Broadcast:
      all = sent[static_cast<size_t>(first.root)];
      break;
    case AllGather:
      for (const std::string_view part : sent) {
        all += part;
      }
      break;
    case Send:
    case Receive:
      all = sent[0];
      break;
    case Split:
      break;
  }
  for (const auto& c : calls) {
    const bool isPart = first.kind == ReduceScatter;
    const uint64_t from = isPart ? static_cast<uint64_t>(c->rank) * c->call.outBytes : 0;
    c->result = c->call.outBytes == 0 ? "" : all.substr(from, c->call.outBytes);
  }
}

}  // namespace

int32_t Devices::post(const Request& r, uint64_t process, std::vector<CollectiveCall> all) {
  if (const int32_t refusal = communicators_.refusal(r.a); refusal != kDone) {
    return refusal;
  }
  const Communicators::Rank& rank = *communicators_.find(r.a);
  const std::string suffix = " of rank " + std::to_string(rank.rank) + " of " + std::to_string(rank.ranks);
  for (const CollectiveCall& c : all) {
    const auto it = streams_.find(c.stream);
    if (it == streams_.end() || it->second.isDestroyed) {
      communicators_.fail(r.a, kCudaFailed);
      return kCudaFailed;
    }
    if (it->second.device != rank.device) {
      reports_.push_back(r.name + suffix + ": stream " + std::to_string(c.stream) + " is of device " +
                         std::to_string(it->second.device) + ", but the communicator of device " +
                         std::to_string(rank.device));
      return kDone;
    }
  }
  if (std::ranges::any_of(all, [&](const CollectiveCall& c) { return isCapturing(c.stream); })) {
    return captureCalls(r, all);
  }
  const auto posted = std::make_shared<Posted>();
  posted->rank = r.a;
  posted->communicator = rank.communicator;
  posted->thread = rank.thread;
  posted->device = rank.device;
  for (const CollectiveCall& c : all) {
    const auto call = std::make_shared<RankCall>();
    call->call = c;
    call->rank = rank.rank;
    call->ranks = rank.ranks;
    call->posted = posted.get();
    call->fails = posted->calls.size() + 1 == r.b;
    Communicators::findRegistered(rank, *call);
    posted->calls.push_back(call);
    if (const std::string difference = communicators_.place(r.a, call); !difference.empty()) {
      reports_.push_back(difference);
    }
    auto place = std::ranges::find(posted->places, c.stream, [](const auto& p) { return p.operation->stream; });
    if (place == posted->places.end()) {
      const std::string name = all.size() == 1 ? call->name() : r.name + suffix;
      if (const std::string posting = communicators_.postingOn(c.stream); !posting.empty()) {
        reports_.push_back(name + ": is enqueued while " + posting + " is in progress on the stream");
      }
      Work work{.kind = Work::Kind::Collective};
      work.posted = posted;
      posted->places.push_back({append(c.stream, process, name, std::move(work), nullptr)});
      lastCollectives_[{process, rank.device}] = posted->places.back().operation;
      place = std::prev(posted->places.end());
    }
    call->operation = std::make_shared<Operation>();
    call->operation->stream = c.stream;
    call->operation->number = place->operation->number;
    call->operation->name = call->name() + " (operation " + std::to_string(place->operation->number) + " of stream " +
                            std::to_string(c.stream) + ")";
    communicators_.noteUse(r.a, *call, *place->operation);
  }
  return communicators_.note(r.a, posted, random_);
}

void Devices::checkWait(const Request& r, uint64_t process) {
  const auto last = lastCollectives_.find({process, r.device});
  if (options_.reportsWaits && last != lastCollectives_.end() &&
      !hosts_[process].knows(last->second->stream, last->second->number)) {
    reports_.push_back(std::string(r.name) + " may wait for all work of the device, but the host has not waited for " +
                       last->second->name);
  }
}

int32_t Devices::split(const Request& r, uint64_t process, const RankSplit& split, uint64_t& handle) {
  if (const int32_t refusal = communicators_.refusal(r.a); refusal != kDone) {
    return refusal;
  }
  const Communicators::Rank& rank = *communicators_.find(r.a);
  const std::string suffix = " of rank " + std::to_string(rank.rank) + " of " + std::to_string(rank.ranks);
  for (const auto& [stream, number] : rank.lastPosted) {
    if (!hosts_[process].knows(stream, number)) {
      reports_.push_back(r.name + suffix + ": a call of the communicator is outstanding, operation " +
                         std::to_string(number) + " of stream " + std::to_string(stream) +
                         ": the host has not waited for it");
    }
  }
  std::string difference;
  handle = communicators_.split(r.a, split, difference);
  if (!difference.empty()) {
    reports_.push_back(difference);
  }
  return kInProgress;
}

int32_t Devices::registerMemory(const Request& r, uint64_t& handle) {
  if (const int32_t refusal = communicators_.refusal(r.a); refusal != kDone) {
    return refusal;
  }
  const uint32_t device = communicators_.find(r.a)->device;
  if (!memories_[device]->contains(r.b) || r.bytes == 0 || r.bytes > kDeviceStride) {
    reports_.push_back(std::string(r.name) + ": no memory of device " + std::to_string(device));
  } else if (const std::string why = memories_[device]->refusal(r.b, r.b + r.bytes); !why.empty()) {
    reports_.push_back(std::string(r.name) + ": " + why);
  }
  for (const auto& [id, m] : communicators_.find(r.a)->registered) {
    if (m.begin < r.b + r.bytes && r.b < m.end) {
      reports_.push_back(std::string(r.name) + ": bytes " + std::to_string(std::max(m.begin, r.b) - r.b) + " to " +
                         std::to_string(std::min(m.end, r.b + r.bytes) - r.b) +
                         " are registered with the communicator already");
    }
  }
  handle = communicators_.registerMemory(r.a, r.b, r.b + r.bytes);
  return kDone;
}

int32_t Devices::deregisterMemory(const Request& r, uint64_t process) {
  Communicators::Rank& rank = *communicators_.find(r.a);
  const auto registered = rank.registered.find(r.b);
  if (registered == rank.registered.end()) {
    return kWrongArgument;
  }
  for (const auto& [stream, number] : registered->second.lastUses) {
    if (isStream(stream) && !hosts_[process].knows(stream, number)) {
      reports_.push_back(std::string(r.name) + " of rank " + std::to_string(rank.rank) + " of " +
                         std::to_string(rank.ranks) + ": operation " + std::to_string(number) + " of stream " +
                         std::to_string(stream) + " uses the memory, and the host has not waited for it");
    }
  }
  rank.registered.erase(registered);
  return kDone;
}

void Devices::proceed(Stream& stream, Queued& q) {
  const std::shared_ptr<Posted> posted = q.task.work.posted;
  const auto place =
      std::ranges::find(posted->places, q.task.operation->stream, [](const auto& p) { return p.operation->stream; });
  if (!place->isReached) {
    begin(stream, q);
    place->isReached = true;
    if (!posted->isAborted && posted->isReached()) {
      reach(posted);
    }
  }
  if (posted->isAborted) {
    leaveResults(*posted, q.task.operation);
    return end(stream);
  }
  finishDue(*posted);
}

// The calls are aborted: anything may be in their results; work after them goes on.
void Devices::leaveResults(const Posted& posted, const std::shared_ptr<Operation>& operation) {
  for (const auto& c : posted.calls) {
    if (!c->hasEnded && c->operation->stream == operation->stream) {
      access(c->call.out, c->call.outBytes, true, posted.hasStarted ? c->operation : operation);
    }
  }
}

void Devices::finishDue(Posted& posted) {
  const Time now = std::chrono::steady_clock::now();
  const auto isDue = [&](const auto& c) { return !c->hasEnded && c->due && *c->due <= now; };
  if (const auto it = std::ranges::find_if(posted.calls, isDue); it != posted.calls.end()) {
    finish(**it);
    if (std::ranges::all_of(posted.calls, [](const auto& c) { return c->hasEnded; })) {
      endPosted(posted);
    }
  }
}

// A kernel of NCCL occupies its device until all ranks have come. A device that has no room for two communicators runs their calls one after
// the other: if two ranks do so in different orders, they wait for each other for ever. Ranks of several threads that share a device have room
// for each.
std::optional<Devices::Time> Devices::roomFor(const Posted& posted) const {
  std::set<uint64_t> others;
  for (const std::weak_ptr<Posted>& weak : resident_) {
    const auto p = weak.lock();
    if (p != nullptr && !p->hasEnded && !p->isAborted && p->device == posted.device && p->thread == posted.thread) {
      others.insert(p->communicator);
    }
  }
  const auto from = roomFrom_.find({posted.device, posted.thread});
  if (others.contains(posted.communicator)) {
    return Time{};
  }
  if (others.size() >= options_.residentCollectives) {
    return std::nullopt;
  }
  return from == roomFrom_.end() ? Time{} : from->second;
}

std::optional<Devices::Time> Devices::nextRoom() const {
  std::optional<Time> first;
  for (const std::weak_ptr<Posted>& weak : waiting_) {
    const auto p = weak.lock();
    const std::optional<Time> room = p == nullptr || p->isAborted ? std::nullopt : roomFor(*p);
    if (room && (!first || *room < *first)) {
      first = room;
    }
  }
  return first;
}

void Devices::reach(const std::shared_ptr<Posted>& posted) {
  waiting_.push_back(posted);
  startWaiting();
}

void Devices::startWaiting() {
  const Time now = std::chrono::steady_clock::now();
  while (true) {
    std::erase_if(waiting_, [](const auto& w) { return w.expired() || w.lock()->isAborted; });
    std::vector<size_t> fit;
    for (size_t i = 0; i < waiting_.size(); i++) {
      if (const auto room = roomFor(*waiting_[i].lock()); room && *room <= now) {
        fit.push_back(i);
      }
    }
    if (fit.empty()) {
      return;
    }
    const size_t next = fit[random_() % fit.size()];
    const std::shared_ptr<Posted> posted = waiting_[next].lock();
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(next));
    std::erase_if(resident_, [](const auto& w) { return w.expired() || w.lock()->hasEnded; });
    resident_.push_back(posted);
    start(*posted);
  }
}

void Devices::start(Posted& posted) {
  posted.hasStarted = true;
  Clock before;  // several streams wait for one another
  for (const Posted::Place& p : posted.places) {
    before.join(p.operation->before);
  }
  for (const auto& c : posted.calls) {
    c->operation->before = before;
  }
  for (const auto& c : posted.calls) {
    if (c->fails) {
      communicators_.fail(posted.rank, kRemoteFailed);
    }
    if (c->exchange != nullptr && c->exchange->canRun()) {
      carryOut(*c->exchange);
    }
  }
}

void Devices::carryOut(Exchange& exchange) {
  if (!reports_.empty()) {  // the calls may differ
    return;
  }
  const std::vector<std::shared_ptr<RankCall>> calls = exchange.calls;
  communicators_.erase(exchange);
  bool isReadable = true;
  for (const auto& c : calls) {
    if (!access(c->call.in, c->call.inBytes, false, c->operation)) {
      reports_.back() += ", as what the rank sends";
      isReadable = false;
    }
    c->operation->after = c->operation->before;
    for (const auto& other : calls) {
      if (dependsOn(c->call, c->rank, other->rank)) {
        c->operation->after.join(other->operation->before);
      }
    }
    c->due = std::chrono::steady_clock::now() + delay();
  }
  if (isReadable) {
    computeResults(calls);
  }
}

void Devices::finish(RankCall& c) {
  c.hasEnded = true;
  if (c.call.outBytes == 0 || c.result.empty()) {
    return;
  }
  if (!access(c.call.out, c.call.outBytes, true, c.operation)) {
    reports_.back() += ", as what the rank receives";
    return;
  }
  std::memcpy(reinterpret_cast<void*>(c.call.out), c.result.data(), c.result.size());
}

void Devices::endPosted(Posted& posted) {
  Clock after;
  for (const auto& c : posted.calls) {
    after.join(c->operation->after);
  }
  for (const Posted::Place& p : posted.places) {
    after.know(p.operation->stream, p.operation->number);
  }
  for (const Posted::Place& p : posted.places) {
    if (const auto run = p.run.lock(); run != nullptr) {
      endStep(run, p.step, after);
      continue;
    }
    Stream& s = streams_.at(p.operation->stream);
    s.clock.join(after);
    end(s);
  }
  posted.hasEnded = true;
  roomFrom_[{posted.device, posted.thread}] = std::chrono::steady_clock::now() + delay();
  communicators_.noteEnd(posted);
}

}  // namespace simgpu
