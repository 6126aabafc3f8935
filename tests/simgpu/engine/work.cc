#include "work.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "product.h"

namespace simgpu {

namespace {

bool isPinned(uint64_t begin, uint64_t bytes, uint64_t process) {
  const uint64_t base = kPinnedBase + process * kPinnedStride;
  return begin >= base && bytes <= kPinnedStride && begin - base <= kPinnedStride - bytes;
}

}  // namespace

Devices::Devices(const Options& options)
    : options_(options), communicators_(options.communicators), random_(options.seed) {
  for (uint64_t d = 0; d < options.devices; d++) {
    memories_.push_back(std::make_unique<Memory>(d, options.memory));
  }
}

Memory* Devices::memoryOf(uint64_t address) const {
  for (const std::unique_ptr<Memory>& m : memories_) {
    if (m->contains(address)) {
      return m.get();
    }
  }
  return nullptr;
}

// -- calls of the host ------------------------------------------------------------------------------------------------

int32_t Devices::allocate(const Request& r, uint64_t process, uint64_t& address) {
  if (r.bytes == 0) {
    return kInvalidValue;
  }
  Memory& memory = *memories_[r.device];
  const std::optional<uint64_t> at =
      memory.allocate(r.bytes, process, std::string(r.name) + " of " + std::to_string(r.bytes) + " bytes");
  if (!at) {
    return kOutOfMemory;
  }
  address = *at;
  memory.poison(address);
  accesses_.forget(address, address + r.bytes);
  if (r.stream == kNow) {
    return kSuccess;
  }
  memory.at(address)->isLive = false;
  return enqueue(r, process, {.kind = Work::Kind::Allocate, .to = address});
}

int32_t Devices::free(const Request& r, uint64_t process) {
  Memory* const memory = memoryOf(r.a);
  Allocation* const a = memory == nullptr ? nullptr : memory->at(r.a);
  constexpr std::string_view kOfNccl = "ncclMem";
  if (a == nullptr || a->isFreed || a->call.starts_with(kOfNccl) != std::string_view(r.name).starts_with(kOfNccl)) {
    return kInvalidValue;
  }
  if (const std::string who = communicators_.registrationIn(r.a, r.a + a->bytes); !who.empty()) {
    reports_.push_back(std::string(r.name) + ": frees memory of " + a->call + " that is registered with " + who);
  }
  a->isFreed = true;
  if (r.stream != kNow) {
    return enqueue(r, process, {.kind = Work::Kind::Free, .to = r.a});
  }
  memory->free(r.a);
  return kSuccess;
}

int32_t Devices::enqueue(const Request& r, uint64_t process, Work work) {
  const auto it = streams_.find(r.stream);
  if (it == streams_.end() || it->second.isDestroyed) {
    return kInvalidHandle;
  }
  Stream& stream = it->second;
  using enum Work::Kind;
  if (work.kind == Copy || work.kind == Fill) {
    for (const uint64_t at : {work.to, work.kind == Copy ? work.from : work.to}) {
      if (!isDeviceAddress(at) && !isPinned(at, work.bytes, process)) {
        return kInvalidValue;
      }
    }
  }
  if (work.kind == Launch && (!functions_.contains(work.shape.function) || stream.device != r.device)) {
    return stream.capture == nullptr ? int32_t{kInvalidHandle} : invalidate(*stream.capture, kInvalidHandle);
  }
  std::string name(r.name);
  if (work.kind == Launch) {
    name += " of " + functions_.at(work.shape.function).name;
  }
  if (work.kind == Product) {
    name += " to " + std::to_string(work.product.d.rows) + " by " + std::to_string(work.product.d.columns);
  }
  if (work.kind == Wait && events_.at(work.event).capture != nullptr) {
    return joinCapture(stream, events_.at(work.event), r.b != 0);
  }
  if (stream.capture != nullptr) {
    return capture(stream, r, name, std::move(work));
  }
  if (work.isExternal) {
    return kInvalidValue;
  }
  work.fails = work.kind == Launch && isStickyLaunch(r, process);
  const bool records = work.kind == Record;
  const uint64_t event = work.event;
  const Mark awaited = work.kind == Wait ? events_.at(event).mark : nullptr;
  const auto operation = append(r.stream, process, name, std::move(work), awaited);
  if (const std::string posting = communicators_.postingOn(r.stream); !posting.empty()) {
    report(*operation, "is enqueued while " + posting + " is in progress on the stream: wait for ncclSuccess before");
  }
  if (records) {
    Event& recorded = events_.at(event);
    recorded = {.device = recorded.device, .measures = recorded.measures, .mark = operation};
  }
  return kSuccess;
}

std::shared_ptr<Operation> Devices::append(uint64_t stream, uint64_t process, const std::string& name, Work work,
                                           const Mark& awaited) {
  Stream& s = streams_.at(stream);
  auto operation = std::make_shared<Operation>();
  operation->stream = stream;
  operation->number = ++s.enqueued;
  operation->name = name + " (operation " + std::to_string(s.enqueued) + " of stream " + std::to_string(stream) + ")";
  const Time start = s.queue.empty() ? std::chrono::steady_clock::now() : s.queue.back().due;
  notePinned(process, operation, work);
  s.queue.push_back({{operation, std::move(work)}, awaited, hosts_[process], start + delay()});
  s.last = operation;
  return operation;
}

bool Devices::isKnownToHost(uint64_t process, const PinnedUse& use) const {
  const auto host = hosts_.find(process);
  return !isStream(use.by->stream) || (host != hosts_.end() && host->second.knows(use.by->stream, use.by->number));
}

void Devices::notePinned(uint64_t process, const std::shared_ptr<Operation>& operation, const Work& work) {
  std::vector<PinnedUse>& uses = pinnedUses_[process];
  const auto note = [&](uint64_t at, uint64_t bytes, bool writes) {
    if (isPinned(at, bytes, process)) {
      uses.push_back({at, at + bytes, writes, operation});
    }
  };
  if (work.kind == Work::Kind::Copy) {
    note(work.from, work.bytes, false);
    note(work.to, work.bytes, true);
  } else if (work.kind == Work::Kind::Launch) {  // a kernel may write where a parameter points
    for (size_t at = 0; at + sizeof(uint64_t) <= work.parameters.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, work.parameters.data() + at, sizeof word);
      note(word, 1, true);
    }
  }
  constexpr size_t kWorthwhile = 256;
  if (uses.size() > kWorthwhile) {
    std::erase_if(uses, [&](const PinnedUse& use) { return isKnownToHost(process, use); });
  }
}

void Devices::accessPinned(const Request& r, uint64_t process) {
  std::vector<PinnedUse>& uses = pinnedUses_[process];
  std::erase_if(uses, [&](const PinnedUse& use) { return isKnownToHost(process, use); });
  for (const PinnedUse& use : uses) {
    if (use.begin < r.a + r.bytes && r.a < use.end && (use.writes || r.b != 0)) {
      reports_.push_back(std::string("the host ") + (r.b != 0 ? "writes" : "reads") + " pinned memory that " +
                         use.by->name + " uses, and has not waited for it");
      return;
    }
  }
}

std::chrono::microseconds Devices::delay() {
  return std::chrono::microseconds(random_() % static_cast<uint64_t>(options_.longestDelay.count() + 1));
}

int32_t Devices::loadFunction(const std::string& name, const std::string& text, Reply& reply, std::string& why) {
  uint64_t& id = functionsByText_[name + '\0' + text];
  if (id == 0) {
    if (text.find(name + "(") == std::string::npos) {
      return kNotFound;
    }
    auto [kernel, reason] = compileKernel(name, text, options_.kernels);
    if (!reason.empty()) {
      why = reason;
      return kReport;
    }
    id = ++lastHandle_;
    functions_[id] = kernel;
  }
  reply.value = id;
  reply.more = functions_.at(id).parameterBytes;
  return kSuccess;
}

int32_t Devices::createStream(uint32_t device, uint64_t process, uint64_t& stream) {
  forgetEndedStreams();
  stream = ++lastHandle_;
  streams_[stream].device = device;
  streams_[stream].process = process;
  return kSuccess;
}

int32_t Devices::destroyStream(uint64_t stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end() || it->second.isDestroyed) {
    return kInvalidHandle;
  }
  if (it->second.capture != nullptr) {
    reports_.push_back("cuStreamDestroy: the stream is capturing; end the capture before");
  }
  it->second.isDestroyed = true;  // its work goes on
  return kSuccess;
}

// The operations of a stream touch the memory of its process only, so they are compared with what this process enqueues. That is ordered
// after all that the host knew when it was enqueued.
void Devices::forgetEndedStreams() {
  constexpr size_t kWorthwhile = 64;
  if (ended_.size() <= mostEnded_ + kWorthwhile) {
    return;
  }
  const auto isKnownToAll = [&](const Ended& e) {
    const auto isKnown = [&](const Queued& q) { return e.number == 0 || q.host.knows(e.stream, e.number); };
    const bool isKnownToHost = e.number == 0 || hosts_[e.process].knows(e.stream, e.number);
    return isKnownToHost && std::ranges::all_of(streams_, [&](const auto& entry) {
             return entry.second.process != e.process || std::ranges::all_of(entry.second.queue, isKnown);
           });
  };
  std::set<uint64_t> known;
  for (const Ended& e : ended_) {
    if (isKnownToAll(e)) {
      known.insert(e.stream);
    }
  }
  std::erase_if(ended_, [&](const Ended& e) { return known.contains(e.stream); });
  mostEnded_ = ended_.size();
  accesses_.forget(known);
  std::erase_if(lastCollectives_, [&](const auto& entry) { return known.contains(entry.second->stream); });
  for (auto& [process, host] : hosts_) {
    host.forget(known);
  }
  for (auto& [id, s] : streams_) {
    s.clock.forget(known);
    for (Queued& q : s.queue) {
      q.host.forget(known);
    }
  }
}

uint64_t Devices::createEvent(uint32_t device, bool measures) {
  events_[++lastHandle_] = {.device = device, .measures = measures};
  return lastHandle_;
}

int32_t Devices::destroyEvent(uint64_t event) { return events_.erase(event) == 1 ? kSuccess : kInvalidHandle; }

int32_t Devices::timeBetween(uint64_t event, uint64_t later, std::chrono::nanoseconds& time) const {
  for (const uint64_t e : {event, later}) {
    if (!isEvent(e) || !events_.at(e).measures || events_.at(e).mark == nullptr) {
      return kInvalidHandle;
    }
  }
  const Mark& from = events_.at(event).mark;
  const Mark& to = events_.at(later).mark;
  if (!hasEnded(from) || !hasEnded(to)) {
    return kNotReady;
  }
  time = to->endTime - from->endTime;
  return kSuccess;
}

bool Devices::hasEnded(const Mark& mark) const {
  if (mark == nullptr) {
    return true;
  }
  if (mark->launchStream != 0) {
    return mark->hasEnded;
  }
  const auto it = streams_.find(mark->stream);
  return it == streams_.end() || it->second.ended >= mark->number;
}

void Devices::tellHost(uint64_t process, const Mark& mark) {
  if (mark != nullptr) {
    hosts_[process].join(mark->after);
  }
}

std::vector<uint64_t> Devices::streamsOf(uint64_t process, uint32_t device) const {
  std::vector<uint64_t> own;
  for (const auto& [id, s] : streams_) {
    if (s.process == process && s.device == device) {
      own.push_back(id);
    }
  }
  return own;
}

std::vector<std::string> Devices::forget(uint64_t process) {
  pinnedUses_.erase(process);
  std::vector<std::string> left = communicators_.forget(process);
  std::ranges::copy(graphs_.forget(process), std::back_inserter(left));
  std::erase_if(captures_, [&](const auto& c) { return c.second->caller.process == process; });
  for (auto it = streams_.begin(); it != streams_.end();) {
    if (it->second.process != process) {
      ++it;
      continue;
    }
    it = streams_.erase(it);
  }
  for (const std::unique_ptr<Memory>& memory : memories_) {
    std::vector<uint64_t> own;
    for (const auto& [at, a] : memory->allocations()) {
      if (a.process == process) {
        own.push_back(at);
        if (!a.isFreed) {
          left.push_back(a.call);
        }
      }
    }
    for (const uint64_t at : own) {
      memory->free(at);
    }
  }
  return left;
}

// -- work -------------------------------------------------------------------------------------------------------------

bool Devices::step(std::optional<Time>& next) {
  if (!waiting_.empty()) {
    startWaiting();
  }
  const Time now = std::chrono::steady_clock::now();
  std::vector<Stream*> ready;
  next.reset();
  for (auto it = streams_.begin(); it != streams_.end();) {
    Stream& s = it->second;
    if (s.queue.empty()) {
      if (s.isDestroyed) {
        ended_.push_back({.stream = it->first, .process = s.process, .number = s.enqueued});
        it = streams_.erase(it);
      } else {
        ++it;
      }
      continue;
    }
    const std::optional<Time> due = failureOf(s.process, s.device) == kSuccess ? nextOf(s) : std::nullopt;
    if (due && *due <= now) {
      ready.push_back(&s);
    } else if (due && (!next || *due < *next)) {
      next = due;
    }
    ++it;
  }
  if (ready.empty()) {
    const std::optional<Time> room = nextRoom();
    next = room && (!next || *room < *next) ? room : next;
    return false;
  }
  Stream& s = *ready[random_() % ready.size()];
  Queued& q = s.queue.front();
  if (q.task.work.kind == Work::Kind::Collective) {
    proceed(s, q);
    return true;
  }
  if (q.task.work.kind == Work::Kind::Graph) {
    advance(s, q);
    return true;
  }
  if (q.task.work.fails) {
    failContext(s.process, s.device);
    return true;
  }
  begin(s, q);
  run(s.device, q.task);
  end(s);
  return true;
}

std::optional<Devices::Time> Devices::nextOf(const Stream& s) const {
  const Queued& q = s.queue.front();
  const Work& work = q.task.work;
  if (!hasEnded(q.awaited)) {
    return std::nullopt;
  }
  if (work.kind == Work::Kind::Graph && work.run->hasBegun) {
    return work.run->next();
  }
  return work.kind == Work::Kind::Collective ? work.posted->next(q.task.operation->stream, q.due) : q.due;
}

void Devices::begin(Stream& s, Queued& q) {
  s.clock.join(q.host);
  if (q.awaited != nullptr) {
    s.clock.join(q.awaited->after);
  }
  q.task.operation->before = s.clock;
}

void Devices::end(Stream& s) {
  Operation& ended = *s.queue.front().task.operation;
  s.clock.know(ended.stream, ended.number);
  ended.after = s.clock;
  ended.endTime = std::chrono::steady_clock::now();
  s.ended = ended.number;
  s.queue.pop_front();
}

void Devices::report(const Operation& by, const std::string& what) { reports_.push_back(by.name + ": " + what); }

bool Devices::access(uint64_t begin, uint64_t bytes, bool writes, const std::shared_ptr<const Operation>& by) {
  if (bytes == 0) {
    return true;
  }
  if (Memory* const memory = memoryOf(begin)) {
    if (const std::string why = memory->refusal(begin, begin + bytes); !why.empty()) {
      report(*by, std::string(writes ? "writes " : "reads ") + why);
      return false;
    }
    if (writes) {
      memory->noteWritten(begin, begin + bytes);
    } else if (const std::optional<uint64_t> at = memory->unwritten(begin, begin + bytes)) {
      report(*by, "reads bytes that nobody has written, the first at " + std::to_string(*at - begin) + " of " +
                      std::to_string(bytes));
      return false;
    }
  }
  if (const auto other = accesses_.touch(begin, begin + bytes, writes, by)) {
    report(*by, std::string(writes ? "writes" : "reads") + " bytes of " + other->name +
                    ", and nothing orders the two: an event or a wait is missing");
    return false;
  }
  return true;
}

void Devices::run(uint32_t device, const Task& task) {
  using enum Work::Kind;
  switch (task.work.kind) {
    case Allocate: {
      Memory& memory = *memoryOf(task.work.to);
      Allocation& a = *memory.at(task.work.to);
      a.isLive = true;
      if (const auto other = accesses_.touch(task.work.to, task.work.to + a.bytes, true, task.operation)) {
        report(*task.operation, "allocates memory that " + other->name + " has used before, and nothing orders the two");
      }
      break;
    }
    case Free: {
      Memory& memory = *memoryOf(task.work.to);
      const Allocation& a = *memory.at(task.work.to);
      if (!a.isLive) {
        report(*task.operation, "frees memory that is not allocated at this place of the stream");
      } else if (const auto other = accesses_.touch(task.work.to, task.work.to + a.bytes, true, task.operation)) {
        report(*task.operation,
               "frees memory that " + other->name + " uses, and nothing orders the two: an event or a wait is missing");
      }
      memory.free(task.work.to);
      break;
    }
    case Copy:
      copy(task);
      break;
    case Fill:
      if (access(task.work.to, task.work.bytes, true, task.operation)) {
        std::memset(reinterpret_cast<void*>(task.work.to), static_cast<int>(task.work.from), task.work.bytes);
      }
      break;
    case Launch:
      launch(task, *memories_[device]);
      break;
    case Product:
      multiply(task, *memories_[device]);
      break;
    case Part:
    case Record:
    case Wait:
    case Collective:
    case Graph:
      break;
  }
}

void Devices::copy(const Task& task) {
  const Work& w = task.work;
  if (access(w.from, w.bytes, false, task.operation) && access(w.to, w.bytes, true, task.operation)) {
    std::memmove(reinterpret_cast<void*>(w.to), reinterpret_cast<const void*>(w.from), w.bytes);
  }
}

void Devices::launch(const Task& task, Memory& memory) {
  const Run run = runKernel(functions_.at(task.work.shape.function), task.work.shape, task.work.parameters, memory,
                            {.order = random_(), .errors = options_.seed});
  for (const std::string& fault : run.faults) {
    report(*task.operation, fault);
  }
  for (const bool writes : {false, true}) {
    for (const auto& [begin, end] : writes ? run.written : run.read) {
      if (const auto other = accesses_.touch(begin, end, writes, task.operation)) {
        report(*task.operation, std::string(writes ? "writes" : "reads") + " bytes of " + other->name +
                                 ", and nothing orders the two: an event or a wait is missing");
        return;
      }
    }
  }
}

void Devices::multiply(const Task& task, const Memory& memory) {
  const MatrixProduct& p = task.work.product;
  if (const std::string name = unboundedOperand(p); !name.empty()) {
    return report(*task.operation, name + " is larger than the memory of a device");
  }
  const std::vector<Operand> operands = operandsOf(p);
  if (const std::string why = overlapIn(p, operands); !why.empty()) {
    return report(*task.operation, why);
  }
  if (p.workspaceNeeded != 0) {
    const uint64_t end = p.workspace + std::min(p.workspaceBytes, kDeviceStride);
    if (const std::string why = memory.refusal(p.workspace, end); !why.empty()) {
      return report(*task.operation, "the workspace is not as large as the program says: " + why);
    }
  }
  for (const Operand& operand : operands) {
    for (const auto& [begin, end] : operand.bytes) {
      if (!memory.contains(begin)) {
        return report(*task.operation, operand.name + " is not in the memory of the stream's device");
      }
      if (!access(begin, end - begin, operand.isWritten, task.operation)) {
        reports_.back() += ", as " + operand.name;
        return;
      }
    }
  }
  simgpu::multiply(p);
}

}  // namespace simgpu
