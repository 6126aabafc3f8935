#include "multidevice/transport/host/host_communicator.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/host/rejoin.h"
#include "multidevice/transport/reduce.h"

namespace meshfuse {

HostCommunicator::HostCommunicator(std::shared_ptr<Bootstrap> bootstrap, const TransportOptions& options,
                                   const std::string& world)
    : HostCommunicator(*bootstrap, options, world) {
  bootstrap_ = std::move(bootstrap);
}

HostCommunicator::HostCommunicator(Bootstrap& bootstrap, const TransportOptions& options, const std::string& world)
    : options_(options),
      algorithms_(AlgorithmTable::parse(options.algorithms)),
      group_(bootstrap, options, world),
      peers_(group_.size()) {
  world_.ranks = firstRanks(size());
  group_.explainBy(*this);
}

HostCommunicator::HostCommunicator(const HostCommunicator& whole, const Team& team)
    : options_(whole.options_),
      algorithms_(whole.algorithms_),
      group_(whole.group_, team),
      peers_(whole.peers_.size()) {
  world_ = team;
  isLane_ = true;
  group_.showLane(team);
}

HostCommunicator::~HostCommunicator() {
  if (isLeftByException()) {
    group_.recordFailure(
        {fmt::format("[host] {} closed its communicator because of an exception", group_.place(rank()))});
  }
}

Communicator* HostCommunicator::lane(const Team& team) {
  const auto make = [&] { return std::make_unique<HostCommunicator>(*this, team); };
  return isLane_ ? nullptr : lanes_.of(team, rank(), size(), make);
}

std::shared_ptr<void> HostCommunicator::allocate(size_t bytes) {
  std::shared_ptr<void> block = group_.heap().allocate(bytes);
  return block != nullptr ? block : allocateOrdinary(bytes);
}

FlightEvent& HostCommunicator::enter(const CallRecord& record) {
  if (group_.recorder().hasAborted()) [[unlikely]] {
    group_.throwIfFailed();
  }
  FlightEvent& event = group_.recorder().begin(record);
  group_.throwIfFailed();
  Status& status = own().status();
  status.call = record;
  status.inCall.store(1, std::memory_order_release);
  return event;
}

void HostCommunicator::leave(FlightEvent& event) {
  own().status().inCall.store(0, std::memory_order_release);
  FlightRecorder::end(event);
}

void HostCommunicator::failUnderWay() {
  if (!group_.hasFailed()) {
    group_.recordFailure({fmt::format("[host] {} left its call because of an exception", group_.place(rank()))});
    group_.writeRecords(group_.failure().text);
  }
  // Before the caller's later writes to its buffers: see HostGroup::checkReadInPlace.
  std::atomic_thread_fence(std::memory_order_release);
}

void HostCommunicator::run(const CollectiveCall& call) {
  checkWithinLane(call.team, call.record.kind);
  HostCall c{call, call.traits().operandHasBlocks ? call.operand : call.result};
  c.record = stamped(call.record, call.team, program());
  int64_t received = 0;
  recorded(c.record, [&](FlightEvent& event) {
    way_ = Algorithm::Default;
    if (isPairwise(c.record)) {
      received = tradePairwise(c);
    } else {
      c.order = nextOrder(c.out);
      received = c.ranks() > 1 ? carry(c) : copyAlone(c);
    }
    event.way = way_;
  });
  count(c.record.kind, received);
}

// The team of one rank.
int64_t HostCommunicator::copyAlone(const HostCall& c) const {
  if (c.traits().reduces) {
    const void* inputs[] = {c.in};
    reduceInRankOrder(inputs, c.out, c.record.count, c.record.type, c.record.op);
  } else {
    moveBytes(c.out, c.in, c.inBytes());
  }
  return 0;
}

void HostCommunicator::announce(const Team& team, const CallRecord& record, Place in, Place parts,
                                std::span<const int64_t> sent) {
  for (const int64_t i : indices(team.ranks)) {
    const int64_t p = team.ranks[i];
    if (p == rank()) {
      continue;
    }
    PeerState& peer = peers_[p];
    ++peer.calls;
    PairLine& line = own().linesTo(p).ofCall[peer.calls % 2];
    line.call = record;
    line.in = in;
    line.parts = sent.empty() ? parts : sent[i];
    line.step.store(++peer.steps, std::memory_order_seq_cst);
    group_.ring(p);
    prefetchForWriting(&own().finishedWith(p), sizeof(FinishedLine));
    prefetchForWriting(&own().linesTo(p).ofCall[(peer.calls + 1) % 2], sizeof(PairLine));
  }
}

void HostCommunicator::meet(const Team& team, const CallRecord& record) {
  for (const int64_t p : peersIn(team)) {
    PeerState& peer = peers_[p];
    group_.join(p);
    const PairLine& line = lineFrom(p);
    group_.await(p, line.step, peer.steps);
    if (line.call != record) [[unlikely]] {
      const DifferingCall own{rank(), record, messageIn(rank(), group_.ownCalls().linesTo(p).ofCall[peer.calls % 2]),
                              group_.place(rank())};
      group_.fail(differenceOf("host", programs().get(), own, {p, line.call, messageIn(p, line), group_.place(p)}));
    }
    peer.finished = peer.calls - 1;
    prefetchForWriting(&own().linesTo(p).ofCall[peer.calls % 2], sizeof(PairLine));
  }
}

void HostCommunicator::synchronize(const Team& team) {
  for (const int64_t p : peersIn(team)) {
    PeerState& peer = peers_[p];
    own().linesTo(p).ofCall[peer.calls % 2].step.store(++peer.steps, std::memory_order_seq_cst);
    group_.ring(p);
  }
  for (const int64_t p : peersIn(team)) {
    group_.await(p, lineFrom(p).step, peers_[p].steps);
  }
}

void HostCommunicator::finish(const Team& team) {
  for (const int64_t p : peersIn(team)) {
    const uint64_t calls = peers_[p].calls;
    // Not sequentially consistent, because that would cost as much as a small call: a rank that falls asleep at this moment may
    // miss the wake-up, and checks again after at most 5 ms.
    own().finishedWith(p).calls.store(static_cast<uint32_t>(calls), std::memory_order_release);
    group_.ring(p);
    for (size_t area = 0; area < kAreas; ++area) {
      if (used_[area]) {
        peers_[p].lastUse[area] = calls;
      }
    }
  }
  used_.fill(false);
}

void HostCommunicator::finishSynchronized(const HostCall& c) {
  group_.checkReadInPlace();
  for (const int64_t p : peersIn(c.team)) {
    own().finishedWith(p).calls.store(static_cast<uint32_t>(peers_[p].calls), std::memory_order_seq_cst);
    group_.ring(p);
  }
  copyOwnBlock(c, OwnPart::Rest);
  for (const int64_t p : peersIn(c.team)) {
    awaitFinished(p, peers_[p].calls);
  }
  used_.fill(false);
}

void HostCommunicator::awaitFinished(int64_t peer, uint64_t call) {
  group_.await(peer, of(peer).finishedWith(rank()).calls, static_cast<uint32_t>(call));
  peers_[peer].finished = call;
}

CopyOrder HostCommunicator::nextOrder(const void* out) {
  const auto at = reinterpret_cast<uintptr_t>(out);
  CopyOrder& order = orders_[(at >> 8 ^ at >> 14 ^ at >> 20) % orders_.size()];
  return order = order == CopyOrder::Forward ? CopyOrder::Backward : CopyOrder::Forward;
}

HostCommunicator::Area HostCommunicator::nextArea(Area first) {
  uint8_t& next = nextOf_[static_cast<size_t>(first) / 2];
  const auto area = static_cast<Area>(first + next);
  next ^= 1;
  for (int64_t p = 0; p < size(); ++p) {
    uint64_t& last = peers_[p].lastUse[area];
    if (last > peers_[p].finished) {  // then it is recent, and its low bits suffice
      awaitFinished(p, last);
    }
    last = 0;
  }
  used_[area] = true;
  return area;
}

std::byte* HostCommunicator::areaOf(int64_t rank, Area area) const {
  const ControlBlock& block = of(rank);
  const int64_t which = area % 2;
  return area >= Parts0 ? block.parts(which) : area >= Stage0 ? block.stage(which) : block.slot(which);
}

std::string_view HostCommunicator::messageIn(int64_t rank, const PairLine& line) const {
  if (line.call.kind != Collective::Exchange || !isArea(line.in)) {
    return {};
  }
  const std::byte* slot = areaOf(rank, areaOfPiece(line.in, 0));
  int64_t bytes = 0;
  std::memcpy(&bytes, slot, sizeof(bytes));
  return {reinterpret_cast<const char*>(slot + sizeof(bytes)), std::min(static_cast<size_t>(bytes), kMessageRoom)};
}

const PairLine& HostCommunicator::lineFrom(int64_t peer) const {
  return of(peer).linesTo(rank()).ofCall[peers_[peer].calls % 2];
}

void HostCommunicator::setStep(int64_t step, std::string_view what) {
  Status& status = own().status();
  const size_t length = std::min(what.size(), sizeof(status.what) - 1);
  std::unique_lock lock(stepMutex_);
  status.step.store(step, std::memory_order_relaxed);
  std::memcpy(status.what, what.data(), length);
  status.what[length] = '\0';
  lock.unlock();
  group_.recorder().setStep(step, what);
}

void HostCommunicator::await(const Team& team, const std::function<bool()>& ready) {
  auto peers = peersIn(team);
  group_.awaitOutside(ready, std::vector<int64_t>(peers.begin(), peers.end()));
}

void HostCommunicator::setBusy(bool busy) { group_.own().status().busy.store(busy ? 1 : 0, std::memory_order_release); }

void HostCommunicator::abort(std::string_view reason) {
  std::unique_lock lock(stepMutex_);
  const std::string text = fmt::format("[host] {} aborted: {}", group_.rankAndStep(rank()), reason);
  lock.unlock();
  group_.recorder().abort();
  group_.recordFailure({text});
}

Communicator::Survivors HostCommunicator::survivors() {
  refuseInLane("shrink");
  checkHasFailed(group_.hasFailed());
  for (;;) {
    Rejoin rejoin(group_, options_);
    std::unique_ptr<Communicator> world;
    try {
      world = std::make_unique<HostCommunicator>(rejoin, options_, group_.world() + ".survivors");
    } catch (const DeviceError&) {
      if (rejoin.isUnderWay()) {
        rejoin.leave();  // this rank cannot continue, so the others continue without it
        throw;
      }
    } catch (...) {
      rejoin.leave();
      throw;
    }
    if (world != nullptr && rejoin.succeeds()) {
      return {rejoin.size() == 1 ? makeSelfCommunicator() : std::move(world), rejoin.members()};
    }
  }
}

std::vector<std::string> HostCommunicator::exchange(std::string_view message) {
  refuseInLane("exchange");
  const CallRecord record = stamped({.kind = Collective::Exchange}, world_, program());
  std::vector<std::string> all;
  recorded(record, [&](FlightEvent&) {
    const auto length = std::ssize(message);
    const Area area = nextArea(Slot0);
    std::byte* slot = areaOf(rank(), area);
    std::memcpy(slot, &length, sizeof(length));
    std::memcpy(slot + sizeof(length), message.data(), std::min(message.size(), kMessageRoom));
    announce(world_, record, placeOf(area), kNowhere);
    meet(world_, record);
    for (int64_t p = 0; p < size(); ++p) {
      const std::byte* theirs = p == rank() ? slot : areaOf(p, areaOfPiece(lineFrom(p).in, 0));
      int64_t bytes = 0;
      std::memcpy(&bytes, theirs, sizeof(bytes));
      all.emplace_back(reinterpret_cast<const char*>(theirs + sizeof(bytes)),
                       std::min(static_cast<size_t>(bytes), kMessageRoom));
      all.back().resize(bytes);
    }
    finish(world_);
    if (std::ranges::any_of(all, [](const std::string& text) { return text.size() > kMessageRoom; })) {
      exchangeLong(message, all);
    }
  });
  return all;
}

// Implemented as an all-gather of bytes, padded to the longest message.
void HostCommunicator::exchangeLong(std::string_view message, std::vector<std::string>& all) {
  const size_t longest = std::ranges::max(mapped(all, &std::string::size));
  std::string padded(message);
  padded.resize(longest);
  std::string gathered(longest * all.size(), '\0');
  const TransferCounters before = counters_;
  allGather(world_, padded.data(), gathered.data(), std::ssize(padded), DataType::Bool);
  counters_ = before;
  for (const int64_t r : indices(all)) {
    all[r] = gathered.substr(r * longest, all[r].size());
  }
}

}  // namespace meshfuse
