#include "communicators.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace simgpu {

namespace {

const char* nameOf(Collective kind) {
  using enum Collective;
  switch (kind) {
    case AllReduce:
      return "ncclAllReduce";
    case Reduce:
      return "ncclReduce";
    case Broadcast:
      return "ncclBroadcast";
    case AllGather:
      return "ncclAllGather";
    case ReduceScatter:
      return "ncclReduceScatter";
    case Send:
      return "ncclSend";
    case Receive:
      return "ncclRecv";
    case Split:
      return "ncclCommSplit";
  }
  return "an unknown call";
}

// How the calls of two ranks that belong together differ; empty if they do not.
std::string differenceOf(const RankCall& a, const RankCall& b) {
  const auto differ = [&](const char* what, auto first, auto second) {
    return std::string(what) + " is " + std::to_string(first) + " in " + a.name() + " but " + std::to_string(second) +
           " in " + b.name();
  };
  const bool isTransfer = a.call.kind == Collective::Send || a.call.kind == Collective::Receive;
  if (!isTransfer && a.call.kind != b.call.kind) {
    return a.name() + " meets " + b.name();
  }
  if (a.call.kind == Collective::Split) {
    return "";
  }
  if (a.isCaptured != b.isCaptured) {
    return (a.isCaptured ? a : b).name() + " is captured and " + (a.isCaptured ? b : a).name() + " is not";
  }
  if (!a.isCaptured && a.capture != b.capture) {
    const bool isOne = a.capture == 0 || b.capture == 0;
    return isOne ? (a.capture != 0 ? a : b).name() + " is a call of a graph and " + (a.capture != 0 ? b : a).name() +
                       " is not"
                 : a.name() + " and " + b.name() + " are calls of graphs, but not of one capture";
  }
  if (a.call.count != b.call.count) {
    return differ("the count", a.call.count, b.call.count);
  }
  if (a.call.type != b.call.type) {
    return differ("the type", a.call.type, b.call.type);
  }
  if (!isTransfer && a.call.operation != b.call.operation) {
    return differ("the operation", a.call.operation, b.call.operation);
  }
  if (!isTransfer && a.call.root != b.call.root) {
    return differ("the root", a.call.root, b.call.root);
  }
  const auto differInRegistration = [&](const char* what, const auto& first, const auto& second) -> std::string {
    if (first.has_value() != second.has_value()) {
      return (first ? a : b).name() + " has its " + what + " in registered memory and " + (first ? b : a).name() +
             " has not";
    }
    return "";
  };
  if (isTransfer) {
    const auto offsetOf = [](const RankCall& c) { return c.call.kind == Collective::Send ? c.inOffset : c.outOffset; };
    return differInRegistration("message", offsetOf(a), offsetOf(b));
  }
  const auto differInMemory = [&](const char* what, const auto& first, const auto& second) {
    return first && second && *first != *second
               ? differ((std::string("the offset of the ") + what + " in registered memory").c_str(), *first, *second)
               : differInRegistration(what, first, second);
  };
  const bool bothRead = a.call.in != 0 && b.call.in != 0;
  const bool bothWrite = a.call.out != 0 && b.call.out != 0;
  const std::string ofOperands = bothRead ? differInMemory("operand", a.inOffset, b.inOffset) : "";
  return !ofOperands.empty() || !bothWrite ? ofOperands : differInMemory("result", a.outOffset, b.outOffset);
}

}  // namespace

std::string RankCall::name() const {
  return std::string(nameOf(call.kind)) + " of rank " + std::to_string(rank) + " of " + std::to_string(ranks);
}

bool Exchange::isPosted() const {
  return std::ranges::all_of(calls, [](const auto& c) { return c != nullptr; });
}

bool Exchange::canRun() const {
  return isPosted() && std::ranges::all_of(calls, [](const auto& c) {
           return c->posted != nullptr && !c->fails && c->posted->hasStarted;
         });
}

bool Posted::isReached() const { return std::ranges::all_of(places, &Place::isReached); }

std::optional<Time> Posted::next(uint64_t stream, Time due) const {
  const auto here = std::ranges::find(places, stream, [](const Place& p) { return p.operation->stream; });
  if (isAborted || !here->isReached) {
    return due;
  }
  if (here != places.begin() || !isReached()) {
    return std::nullopt;
  }
  std::optional<Time> first;
  for (const auto& c : calls) {
    if (!c->hasEnded && c->due && (!first || *c->due < *first)) {
      first = c->due;
    }
  }
  return first;
}

// -- who belongs to a communicator ------------------------------------------------------------------------------------

Communicators::Rank* Communicators::find(uint64_t handle) {
  const auto it = ranks_.find(handle);
  return it == ranks_.end() ? nullptr : &it->second;
}

uint64_t Communicators::init(const NewRank& n, uint64_t process, uint64_t thread, uint32_t device) {
  const uint64_t handle = ++lastHandle_;
  Rank& rank = ranks_[handle];
  rank = {.process = process, .thread = thread, .device = device, .communicator = n.id, .rank = n.rank, .ranks = n.ranks};
  rank.isBlocking = n.isBlocking != 0;
  rank.madeBy = "ncclCommInitRankConfig";
  const auto refuse = [&](int32_t error) {
    rank.error = error;
    rank.communicator = 0;
    return handle;
  };
  if (n.id == 0 || n.id > lastId_) {
    return refuse(kWrongArgument);
  }
  Clique& clique = cliques_[n.id];
  if (clique.handles.empty()) {
    const auto count = static_cast<size_t>(n.ranks);
    clique.ranks = n.ranks;
    clique.handles.resize(count);
    clique.hasFinalized.resize(count);
    clique.hasAborted.resize(count);
  } else if (clique.arrived == clique.ranks) {  // the id has been used
    return refuse(kWrongUsage);
  }
  const auto at = static_cast<size_t>(n.rank);
  if (clique.ranks != n.ranks || clique.handles[at] != 0 || clique.hasAborted[at]) {
    clique.error = kWrongUsage;  // all of its ranks get it
    return refuse(kWrongUsage);
  }
  for (const uint64_t other : clique.handles) {
    if (other != 0 && ranks_.at(other).device == device && !options_.sharesDevices) {
      clique.error = kWrongUsage;
    }
  }
  clique.handles[at] = handle;
  clique.arrived++;
  return handle;
}

void Communicators::makeParts(Exchange& exchange) {
  std::map<int, std::vector<RankCall*>> parts;  // by color
  for (const auto& c : exchange.calls) {
    const uint64_t parent = cliques_.at(exchange.communicator).handles[static_cast<size_t>(c->rank)];
    if (parent != 0) {
      ranks_.at(parent).isSplitting = false;
    }
    if (c->call.root != kNoColor) {
      parts[c->call.root].push_back(c.get());
    }
  }
  for (auto& [color, calls] : parts) {
    std::ranges::stable_sort(calls, {}, [](const RankCall* c) { return static_cast<int64_t>(c->call.count); });
    const uint64_t id = newId();
    Clique& clique = cliques_[id];
    clique.ranks = clique.arrived = static_cast<int>(calls.size());
    clique.hasFinalized.resize(calls.size());
    clique.hasAborted.resize(calls.size());
    for (const RankCall* c : calls) {
      const auto at = static_cast<int>(clique.handles.size());
      clique.handles.push_back(c->part);
      if (Rank* const r = find(c->part)) {
        r->communicator = id;
        r->rank = at;
        r->ranks = clique.ranks;
      } else {  // it has been aborted meanwhile
        clique.handles.back() = 0;
        clique.hasAborted[static_cast<size_t>(at)] = true;
      }
    }
  }
}

uint64_t Communicators::split(uint64_t handle, const RankSplit& s, std::string& difference) {
  uint64_t part = 0;
  if (s.color != kNoColor) {
    part = ++lastHandle_;
    const Rank& parent = ranks_.at(handle);
    Rank& made = ranks_[part];
    made = {.process = parent.process, .thread = parent.thread, .device = parent.device};
    made.isBlocking = s.isBlocking != 0;
    made.madeBy = "ncclCommSplit";
  }
  Rank& parent = ranks_.at(handle);
  parent.isSplitting = true;
  const auto call = std::make_shared<RankCall>();
  call->call = {.kind = Collective::Split, .root = s.color, .count = static_cast<uint64_t>(int64_t{s.key})};
  call->rank = parent.rank;
  call->ranks = parent.ranks;
  call->part = part;
  difference = place(handle, call);
  if (difference.empty() && call->exchange->isPosted()) {
    makeParts(*call->exchange);
    erase(*call->exchange);
  }
  return part;
}

// -- states -----------------------------------------------------------------------------------------------------------

bool Communicators::isQuiescent(const Clique& clique) const {
  if (!std::ranges::all_of(clique.hasFinalized, [](bool has) { return has; })) {
    return false;
  }
  return std::ranges::all_of(clique.handles, [&](uint64_t h) { return h == 0 || ranks_.at(h).unfinished.empty(); });
}

int32_t Communicators::state(uint64_t handle) {
  Rank& r = ranks_.at(handle);
  if (r.error != kDone) {
    return r.error;
  }
  if (r.communicator == 0) {
    return kInProgress;
  }
  const Clique& clique = cliques_.at(r.communicator);
  if (clique.error != kDone) {
    return clique.error;
  }
  if (clique.arrived < clique.ranks || r.isSplitting) {
    return kInProgress;
  }
  if (r.inProgress != nullptr) {
    const auto isPosted = [](const auto& c) { return c->exchange == nullptr || c->exchange->isPosted(); };
    if (std::chrono::steady_clock::now() < r.inProgressUntil ||
        (r.waitsForPeers && !std::ranges::all_of(r.inProgress->calls, isPosted))) {
      return kInProgress;
    }
    r.inProgress = nullptr;
  }
  if (r.end == Rank::End::Asked) {
    if (!isQuiescent(clique)) {
      return kInProgress;
    }
    r.end = Rank::End::Told;
  }
  return kDone;
}

int32_t Communicators::refusal(uint64_t handle) {
  Rank& r = ranks_.at(handle);
  // A state that the program has not asked for is still in progress for it.
  const bool isUntold = r.inProgress != nullptr || r.end == Rank::End::Asked;
  const int32_t now = isUntold && r.error == kDone ? int32_t{kInProgress} : state(handle);
  if (now == kInProgress || (now == kDone && r.end != Rank::End::No)) {
    r.error = kWrongUsage;
    return kWrongUsage;
  }
  return now;
}

int32_t Communicators::stateToDestroy(uint64_t handle) {
  const Rank& r = ranks_.at(handle);
  return r.end == Rank::End::No && state(handle) == kInProgress ? int32_t{kInProgress} : int32_t{kDone};
}

std::string Communicators::finalize(uint64_t handle, bool destroys) {
  Rank& r = ranks_.at(handle);
  if (destroys && r.end == Rank::End::Asked && r.error == kDone) {
    return "the communicator is being finalized: ncclCommGetAsyncError has not given ncclSuccess";
  }
  if (destroys && (r.error != kDone || cliques_.at(r.communicator).error != kDone)) {
    return "the communicator has an error: ncclCommAbort ends it";
  }
  if (r.end != Rank::End::No) {
    return "";
  }
  r.end = Rank::End::Asked;
  r.isDestroying = destroys;
  Clique& clique = cliques_.at(r.communicator);
  clique.hasFinalized[static_cast<size_t>(r.rank)] = true;
  const auto it = std::ranges::find(clique.hasAborted, true);
  if (!destroys || it == clique.hasAborted.end()) {
    return "";
  }
  return "it would wait for rank " + std::to_string(it - clique.hasAborted.begin()) +
         ", which has been aborted: all ranks must be";
}

void Communicators::failOn(uint32_t device, std::optional<uint64_t> process) {
  for (auto& [handle, r] : ranks_) {
    if (r.device == device && r.error == kDone && (!process || *process == r.process)) {
      r.error = kCudaFailed;
    }
  }
}

void Communicators::release(uint64_t handle) {
  const Rank& r = ranks_.at(handle);
  if (r.communicator != 0) {
    uint64_t& own = cliques_.at(r.communicator).handles[static_cast<size_t>(r.rank)];
    own = own == handle ? 0 : own;
  }
  ranks_.erase(handle);
}

void Communicators::loseRank(const Rank& r) {
  for (const auto& posted : r.unfinished) {
    posted->isAborted = true;
    for (const auto& call : posted->calls) {
      call->posted = nullptr;
    }
  }
}

std::string Communicators::abort(uint64_t handle) {
  const Rank& r = ranks_.at(handle);
  std::string why;
  loseRank(r);
  const auto it = cliques_.find(r.communicator);
  const auto at = static_cast<size_t>(r.rank);
  if (it != cliques_.end() && it->second.error == kDone && it->second.handles[at] == handle &&
      r.end != Rank::End::Told) {
    it->second.hasAborted[at] = true;
    for (const uint64_t peer : it->second.handles) {
      if (peer != 0 && ranks_.at(peer).isDestroying && !isQuiescent(it->second)) {
        why = "rank " + std::to_string(ranks_.at(peer).rank) +
              " waits in ncclCommDestroy for this one, which is aborted: all ranks must be";
      }
    }
  }
  release(handle);
  return why;
}

std::vector<std::string> Communicators::forget(uint64_t process) {
  std::vector<std::string> left;
  std::vector<uint64_t> own;
  for (const auto& [handle, r] : ranks_) {
    if (r.process == process) {
      own.push_back(handle);
    }
  }
  for (const uint64_t handle : own) {
    const Rank& r = ranks_.at(handle);
    left.push_back("the communicator of rank " + std::to_string(r.rank) + " of " + std::to_string(r.ranks) + " (" +
                   r.madeBy + ")");
    loseRank(r);
    if (const auto it = cliques_.find(r.communicator);
        it != cliques_.end() && r.end != Rank::End::Told && !options_.isDeathSilent) {
      for (const uint64_t peer : it->second.handles) {
        if (peer != 0 && ranks_.at(peer).process != process && ranks_.at(peer).error == kDone) {
          ranks_.at(peer).error = kRemoteFailed;
        }
      }
    }
    release(handle);
  }
  return left;
}

// -- calls ------------------------------------------------------------------------------------------------------------

std::string Communicators::place(uint64_t handle, const std::shared_ptr<RankCall>& call) {
  Rank& r = ranks_.at(handle);
  const bool sends = call->call.kind == Collective::Send;
  const bool isTransfer = sends || call->call.kind == Collective::Receive;
  const int peer = call->call.root;
  const auto key = sends        ? std::tuple(r.rank, peer, r.sends[peer]++)
                   : isTransfer ? std::tuple(peer, r.rank, r.receives[peer]++)
                                : std::tuple(-1, -1, r.collectives++);
  Exchange& exchange = cliques_.at(r.communicator).exchanges[key];
  exchange.communicator = r.communicator;
  exchange.key = key;
  exchange.calls.resize(isTransfer ? 2 : static_cast<size_t>(r.ranks));
  call->exchange = &exchange;
  if (call->isCaptured) {
    exchange.capture = exchange.capture == 0 ? ++lastCapture_ : exchange.capture;
    call->capture = exchange.capture;
  }
  std::string difference;
  for (const auto& other : exchange.calls) {
    if (other != nullptr && difference.empty()) {
      difference = differenceOf(*other, *call);
    }
  }
  exchange.calls[isTransfer ? (sends ? 0 : 1) : static_cast<size_t>(r.rank)] = call;
  if (difference.empty()) {
    return "";
  }
  return (isTransfer ? "transfer " : "call ") + std::to_string(std::get<2>(key) + 1) +
         (isTransfer ? " between two ranks differs: " : " of the communicator differs among its ranks: ") + difference;
}

int32_t Communicators::note(uint64_t handle, const std::shared_ptr<Posted>& posted, std::mt19937_64& random) {
  Rank& r = ranks_.at(handle);
  const bool isFirst = r.lastPosted.empty();
  r.unfinished.push_back(posted);
  for (const Posted::Place& p : posted->places) {
    r.lastPosted[p.operation->stream] = p.operation->number;
  }
  return progressOf(r, posted, isFirst, random);
}

int32_t Communicators::noteCaptured(uint64_t handle, const std::shared_ptr<Posted>& posted, std::mt19937_64& random) {
  for (const auto& call : posted->calls) {
    call->posted = nullptr;  // it does not run
    if (call->exchange != nullptr && call->exchange->isPosted()) {
      erase(*call->exchange);
    }
  }
  Rank& r = ranks_.at(handle);
  return progressOf(r, posted, r.lastPosted.empty(), random);
}

void Communicators::noteLaunched(uint64_t handle, const std::shared_ptr<Posted>& posted, const Operation& launch) {
  Rank& r = ranks_.at(handle);
  r.unfinished.push_back(posted);
  r.lastPosted[launch.stream] = launch.number;
}

int32_t Communicators::progressOf(Rank& r, const std::shared_ptr<Posted>& posted, bool isFirst,
                                  std::mt19937_64& random) {
  // Connections are made by the first call, which may wait for the peers then. A rank that does not block need not be told at once.
  const bool waitsForPeers = random() % 100 < options_.waitPercent && (isFirst || !r.isBlocking);
  if (!waitsForPeers && (r.isBlocking || random() % 2 == 0)) {
    return kDone;
  }
  const auto longest = static_cast<uint64_t>(options_.longestDelay.count());
  r.inProgress = posted;
  r.inProgressUntil = std::chrono::steady_clock::now() + std::chrono::microseconds(random() % (longest + 1));
  r.waitsForPeers = waitsForPeers;
  return kInProgress;
}

void Communicators::noteEnd(const Posted& posted) {
  if (Rank* const r = find(posted.rank)) {
    std::erase_if(r->unfinished, [&](const auto& p) { return p.get() == &posted; });
  }
}

void Communicators::erase(const Exchange& exchange) {
  for (const auto& call : exchange.calls) {
    call->exchange = nullptr;
  }
  cliques_.at(exchange.communicator).exchanges.erase(std::tuple(exchange.key));
}

std::string Communicators::postingOn(uint64_t stream) const {
  for (const auto& [handle, r] : ranks_) {
    if (r.inProgress == nullptr || r.isBlocking || r.error != kDone) {
      continue;
    }
    for (const auto& call : r.inProgress->calls) {
      if (call->call.stream == stream) {
        return call->name();
      }
    }
  }
  return "";
}

// -- registered memory ------------------------------------------------------------------------------------------------

uint64_t Communicators::registerMemory(uint64_t handle, uint64_t begin, uint64_t end) {
  ranks_.at(handle).registered[++lastHandle_] = {.begin = begin, .end = end};
  return lastHandle_;
}

namespace {

// The handle of the registered memory that holds these bytes; 0: none does.
uint64_t registeredOf(const Communicators::Rank& rank, uint64_t begin, uint64_t bytes) {
  const auto it = std::ranges::find_if(rank.registered, [&](const auto& entry) {
    return begin >= entry.second.begin && begin + bytes <= entry.second.end;
  });
  return it == rank.registered.end() ? 0 : it->first;
}

}  // namespace

void Communicators::findRegistered(const Rank& rank, RankCall& call) {
  const auto offsetOf = [&](uint64_t begin, uint64_t bytes) -> std::optional<uint64_t> {
    const uint64_t registered = registeredOf(rank, begin, bytes);
    return registered == 0 ? std::nullopt : std::optional(begin - rank.registered.at(registered).begin);
  };
  call.inOffset = offsetOf(call.call.in, call.call.inBytes);
  call.outOffset = offsetOf(call.call.out, call.call.outBytes);
}

void Communicators::noteUse(uint64_t handle, const RankCall& call, const Operation& operation) {
  Rank& rank = ranks_.at(handle);
  for (const auto& [begin, bytes] :
       {std::pair(call.call.in, call.call.inBytes), std::pair(call.call.out, call.call.outBytes)}) {
    if (const uint64_t registered = registeredOf(rank, begin, bytes); registered != 0) {
      rank.registered.at(registered).lastUses[operation.stream] = operation.number;
    }
  }
}

std::string Communicators::registrationIn(uint64_t begin, uint64_t end) const {
  for (const auto& [handle, r] : ranks_) {
    for (const auto& [id, memory] : r.registered) {
      if (memory.begin < end && begin < memory.end) {
        return "the communicator of rank " + std::to_string(r.rank) + " of " + std::to_string(r.ranks);
      }
    }
  }
  return "";
}

}  // namespace simgpu
