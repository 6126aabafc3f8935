#include "multidevice/transport/host/host_group.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/transport/wait_observer.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

// Longer than the copies of a medium call by a peer on the same core, shorter than the time slice of a computing peer.
constexpr auto kSlowYield = 500us;
constexpr auto kHostPeerIsSlow = 300us;
constexpr int64_t kStolen = 250;
constexpr auto kLongestSleep = 5ms;
constexpr auto kDeadlockCheck = 50ms;
constexpr auto kHostBeat = 25ms;
constexpr int64_t kStaleBeat = 2000;  // milliseconds

}  // namespace

HostGroup::~HostGroup() {
  if (hasFailed()) {
    writeRecords(failure().text);
  }
  if (isLane()) {
    return;
  }
  beatThread_ = {};
  own().status().closed.store(1, std::memory_order_seq_cst);
  for (int64_t p = 0; p < size_; ++p) {
    ring(p);
  }
}

HostGroup::Peer::~Peer() {
  if (descriptor >= 0) {
    close(descriptor);
  }
}

bool HostGroup::hasEnded(int64_t peer) const {
  pollfd polled{(*peers_)[peer].descriptor, POLLIN, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0;
}

int64_t HostGroup::millisecondsNow() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::chrono::milliseconds HostGroup::sinceLastBeat(int64_t peer) const {
  return std::chrono::milliseconds(millisecondsNow() - of(peer).status().beat.load(std::memory_order_relaxed));
}

bool HostGroup::isBusy(int64_t peer) const {
  return of(peer).status().busy.load(std::memory_order_relaxed) != 0 && sinceLastBeat(peer).count() < kStaleBeat;
}

void HostGroup::beat(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any pause;
  while (!pause.wait_for(lock, stop, kHostBeat, [&] { return stop.stop_requested(); })) {
    own().status().beat.store(millisecondsNow(), std::memory_order_relaxed);
    if (launcherHasEnded() && !hasFailed()) {
      recordFailure({fmt::format("[host] {}", kLauncherEnded)});
    }
  }
}

void HostGroup::wake(Doorbell& bell) {
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// A peer stores a word and then rings if it sees `sleeping`; if it does not see it, its store precedes the call of `ready` here.
void HostGroup::sleepUnless(const std::function<bool()>& ready) const {
  Doorbell& bell = own().doorbell();
  const uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
  bell.sleeping.fetch_add(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // `ready` only acquires
  if (!ready()) {
    const timespec limit{0, std::chrono::nanoseconds(kLongestSleep).count()};
    syscall(SYS_futex, &bell.rings, FUTEX_WAIT, rings, &limit, nullptr, 0);
  }
  bell.sleeping.fetch_sub(1, std::memory_order_relaxed);
}

void HostGroup::awaitLong(const Wait& wait) {
  recorder_->waits();
  const auto deadline = Clock::now() + deadline_;
  Fiber::pauseUntil([&] { return wait.ready() || hasFailed(); });
  const ObservedWait observed;
  const auto begin = Clock::now();
  auto limit = deadline;
  auto nextDeadlockCheck = begin + kDeadlockCheck;
  bool published = false;
  while (!wait.ready()) {
    if (hasFailed()) {
      if (wait.ready()) {  // a complete call succeeds, even if the world has failed since
        break;
      }
      throwFailure();
    }
    const auto before = Clock::now();
    if (!coreForEachRank() && stolen_ == 0 && before - begin < kHostPeerIsSlow) {
      sched_yield();
      stolen_ = Clock::now() - before > kSlowYield ? kStolen : 0;
      continue;
    }
    stolen_ -= stolen_ > 0 ? 1 : 0;
    if (!published) {
      publish(&wait);
      published = true;
    }
    sleepUnless(wait.ready);
    if (wait.ready()) {
      break;
    }
    const auto now = Clock::now();
    checkProcesses(wait);
    const int64_t busy = busyPeer(wait);
    ownCalls().status().waitsForBusy.store(static_cast<uint32_t>(busy + 1), std::memory_order_relaxed);
    if (now >= nextDeadlockCheck) {
      checkDeadlock(wait);
      nextDeadlockCheck = now + kDeadlockCheck;
    }
    if (busy >= 0 && now < begin + busyLimit_) {
      limit = now + deadline_;
    } else if (now >= limit) {
      failLate(wait);
    }
  }
  if (published) {
    publish(nullptr);
  }
}

void HostGroup::publish(const Wait* wait) const {
  Status& status = ownCalls().status();
  const bool single = wait != nullptr && wait->word != nullptr;
  status.waits.fetch_add(1, std::memory_order_acq_rel);  // odd: being written
  // Released, so that a rank that sees a new value also sees the odd count.
  status.waitOwner.store(single ? wait->peers[0] : -1, std::memory_order_release);
  status.waitOffset.store(single ? callsOf(wait->peers[0]).offsetOf(*wait->word) : 0, std::memory_order_release);
  status.waitValue.store(single ? wait->value : 0, std::memory_order_release);
  status.waits.fetch_add(1, std::memory_order_acq_rel);
  status.waitsForBusy.store(0, std::memory_order_relaxed);
}

void HostGroup::checkProcesses(const Wait& wait) {
  std::vector<pollfd> polled = mapped(*peers_, [](const Peer& p) { return pollfd{p.descriptor, POLLIN, 0}; });
  poll(polled.data(), polled.size(), 0);
  for (int64_t r = 0; r < size_; ++r) {
    const bool closed = hasLeft(r);
    const bool ended = (polled[r].revents & POLLIN) != 0;
    const bool isMissed = contains(wait.peers, r) && !wait.peersMayLeave;
    if (r == rank_ || (!ended && !closed) || (closed && !isMissed) || wait.ready()) {
      continue;
    }
    throwIfFailed();  // the peer may have recorded the reason
    if (closed) {
      fail(fmt::format("[host] {} has closed its communicator, but {} waits for it", place(r), place(rank_)));
    }
    fail(fmt::format("[host] {}: its process {} ended; noticed by {}", place(r), (*peers_)[r].pid, place(rank_)));
  }
}

bool HostGroup::waitsFor(int64_t rank, int64_t& owner, uint32_t& generation) const {
  if (!callsOf(rank).isThere()) {
    return false;
  }
  const Status& status = callsOf(rank).status();
  generation = status.waits.load(std::memory_order_acquire);
  owner = status.waitOwner.load(std::memory_order_acquire);
  const uint64_t offset = status.waitOffset.load(std::memory_order_acquire);
  const uint32_t value = status.waitValue.load(std::memory_order_acquire);
  const bool isWhole = generation % 2 == 0 && status.waits.load(std::memory_order_acquire) == generation;
  return isWhole && owner >= 0 && owner < size_ && offset < ControlBlock::bytes(size_) && callsOf(owner).isThere() &&
         static_cast<int32_t>(callsOf(owner).word(offset).load(std::memory_order_acquire) - value) < 0;
}

// Follows the chain of waits from this rank. A cycle is a deadlock if a second reading finds the same waits: then all of them held
// at the same time.
void HostGroup::checkDeadlock(const Wait& wait) {
  if (wait.word == nullptr) {
    return;
  }
  struct Link {
    int64_t rank;
    int64_t owner;
    uint32_t generation;
  };
  std::vector<Link> cycle;
  int64_t at = rank_;
  do {
    Link link{at, -1, 0};
    if (std::ssize(cycle) == size_ || !waitsFor(at, link.owner, link.generation)) {
      return;
    }
    cycle.push_back(link);
    at = link.owner;
  } while (at != rank_);
  std::string text;
  for (const Link& link : cycle) {
    int64_t owner = -1;
    uint32_t generation = 0;
    if (!waitsFor(link.rank, owner, generation) || generation != link.generation) {
      return;
    }
    text += fmt::format("{}{} waits for rank {}", text.empty() ? "" : "; ", place(link.rank), owner);
  }
  // All ranks of the cycle are in calls: if two of them run different programs, that is the reason.
  const auto callOf = [&](int64_t r) { return DifferingCall{r, of(r).status().call, {}, place(r)}; };
  for (const Link& link : cycle) {
    const Communicator::Programs* programs = explains_ == nullptr ? nullptr : explains_->programs().get();
    if (std::optional<GroupFailure> why = disagreement(programs, callOf(link.rank), callOf(link.owner))) {
      fail(*why);
    }
  }
  fail("[host] deadlock: " + text);
}

int64_t HostGroup::busyPeer(const Wait& wait) const {
  for (int64_t p : wait.peers) {
    if (isBusy(p)) {
      return p;
    }
    // the rank that p waits for, in its own world or in this lane
    for (const ControlBlock* block : {&of(p), &callsOf(p)}) {
      const int64_t awaited =
          block->isThere() ? static_cast<int64_t>(block->status().waitsForBusy.load(std::memory_order_relaxed)) - 1
                           : -1;
      if (awaited >= 0 && awaited != rank_ && isBusy(awaited)) {
        return awaited;
      }
    }
  }
  return -1;
}

// Names the ranks that this rank waits for, the ranks that these wait for in turn, and all other ranks without a heartbeat: a rank may
// be late only because another one is.
void HostGroup::failLate(const Wait& wait) {
  std::string text = fmt::format("[host] a deadline of {} ms expired: {} waits for", deadline_.count(), place(rank_));
  std::vector<uint8_t> named(size_);
  named[rank_] = 1;
  const auto name = [&](int64_t r) {
    const int64_t age = sinceLastBeat(r).count();
    text += " " + place(r) + ", " +
            (age < kStaleBeat
                 ? "alive"
                 : fmt::format("without a heartbeat for {} ms: its process is stopped or gets no processor time", age));
    named[r] = 1;
  };
  for (const int64_t p : wait.peers) {
    text += p == wait.peers[0] ? "" : ";";
    name(p);
    int64_t awaited = -1;
    uint32_t generation = 0;
    for (int64_t at = p; waitsFor(at, awaited, generation) && named[awaited] == 0; at = awaited) {
      text += ", which waits for";
      name(awaited);
    }
  }
  for (int64_t r = 0; r < size_; ++r) {
    if (named[r] == 0 && !hasLeft(r) && sinceLastBeat(r).count() >= kStaleBeat) {
      text += "; and";
      name(r);
    }
  }
  fail(text);
}

void HostGroup::recordFailure(const GroupFailure& given) {
  Failure& failure = of(0).failure();
  uint32_t none = Failure::None;
  if (!failure.state.compare_exchange_strong(none, Failure::BeingWritten)) {
    return;
  }
  const size_t length = std::min(given.text.size(), kFailureText - 1);
  std::memcpy(failure.text, given.text.data(), length);
  failure.text[length] = '\0';
  failure.isDisagreement = given.isDisagreement ? 1 : 0;
  failure.state.store(Failure::Written, std::memory_order_seq_cst);
  for (int64_t p = 0; p < size_; ++p) {
    wake(of(p).doorbell());
  }
}

void HostGroup::writeRecords(const std::string& failure) const {
  recorder_->waits();
  recorder_->write(failure);
  for (int64_t p = 0; p < size_; ++p) {
    if (p != rank_ && callsOf(p).isThere() && (hasEnded(p) || hasLeft(p) || sinceLastBeat(p).count() > kStaleBeat)) {
      recorder_->writeFor(p, callsOf(p).flight(), failure);
    }
  }
}

void HostGroup::fail(const GroupFailure& failure) {
  recordFailure(failure);
  throwFailure();
}

GroupFailure HostGroup::failure() const {
  const Failure& failure = of(0).failure();
  for (int64_t i = 0; i < 1000 && failure.state.load(std::memory_order_acquire) != Failure::Written; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  const bool written = failure.state.load(std::memory_order_acquire) == Failure::Written;
  const std::string text =
      written ? failure.text : "[host] a peer failed, and its process ended before it reported the reason";
  return {text, written && failure.isDisagreement != 0};
}

void HostGroup::throwFailure() const {
  const GroupFailure first = failure();
  writeRecords(first.text);
  meshfuse::throwFailure(first);
}

std::string HostGroup::rankAndStep(int64_t rank) const {
  const Status& status = callsOf(rank).status();
  const std::string_view what(status.what, strnlen(status.what, sizeof(status.what)));
  return describeRank(rank, size_, status.step.load(std::memory_order_relaxed), what);
}

std::string HostGroup::place(int64_t rank) const {
  if (!callsOf(rank).isThere()) {
    return fmt::format("[rank {}/{}] without a call posted for this team", rank, size_);
  }
  const Status& status = callsOf(rank).status();
  const std::string text = rankAndStep(rank);
  if (status.inCall.load(std::memory_order_acquire) != 0) {
    return text + " in " + describe(CallRecord(status.call));
  }
  const bool busy = of(rank).status().busy.load(std::memory_order_relaxed) != 0;
  return text + (busy ? " busy outside any call" : " outside any call");
}

}  // namespace meshfuse
