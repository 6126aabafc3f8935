#include "multidevice/transport/loopback/rendezvous.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "base/fiber.h"
#include "base/ranges.h"
#include "multidevice/transport/lanes.h"
#include "multidevice/transport/wait_observer.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;
using Direction = Communicator::Transfer::Direction;

constexpr std::chrono::microseconds kLongestSpin{100};

}  // namespace

LoopbackRendezvous::LoopbackRendezvous(int64_t ranks, std::chrono::milliseconds deadline, std::string world,
                                       LoopbackRendezvous* whole)
    : whole_(whole),
      slots_(ranks),
      deadline_(deadline),
      world_(std::move(world)),
      spins_(whole != this ? whole->spins_ : ranks <= availableCores()) {
  for (Slot& s : slots_) {
    s.arrivals.resize(slots_.size());
    s.parcels.resize(slots_.size());
    s.awaited.reserve(2 * slots_.size());  // the number of ranks awaited at a time varies between runs
  }
}

LoopbackRendezvous::LoopbackRendezvous(LoopbackRendezvous& whole, const Team& team)
    : LoopbackRendezvous(whole.size(), whole.deadline_, laneName(whole.world_, team), &whole) {
  for (int64_t r = 0; r < size(); ++r) {
    Slot& s = slot(r);
    s.member = contains(team.ranks, r);
    s.busy = s.member && whole.slot(r).busy;
    s.left = !s.member || whole.slot(r).left;
  }
}

LoopbackRendezvous& LoopbackRendezvous::lane(const Team& team) {
  Lock lock(mutex_);
  auto lane = lanes_.find(team.ranks);
  if (lane == lanes_.end()) {
    std::unique_ptr<LoopbackRendezvous> made(new LoopbackRendezvous(*this, team));
    lane = lanes_.emplace(team.ranks, std::move(made)).first;
  }
  return *lane->second;
}

void LoopbackRendezvous::begin(int64_t rank, const Team& team, const Call& call) {
  Lock lock(mutex_);
  slot(rank).call = call;
  slot(rank).inCall = true;
  arrive(lock, rank, team);
  for (int64_t p : team.ranks) {
    if (failure_) {  // the rank that found it has left the call, and its message is no longer valid
      throwFailure(lock, rank);
    }
    if (call.record != slot(p).call.record) {
      failLocked(differenceOf("loopback", call.programs, differing(rank), differing(p)));
      throwFailure(lock, rank);
    }
  }
  startReading(lock, rank, team);
}

void LoopbackRendezvous::synchronize(int64_t rank, const Team& team) {
  Lock lock(mutex_);
  arrive(lock, rank, team);
  startReading(lock, rank, team);
}

// A rank that had arrived may have left the call by an exception and freed its buffers.
void LoopbackRendezvous::startReading(Lock& lock, int64_t rank, const Team& team) {
  if (failure_) {
    throwFailure(lock, rank);
  }
  slot(rank).reads = &team;
}

void LoopbackRendezvous::arrive(Lock& lock, int64_t rank, const Team& team) {
  Slot& own = slot(rank);
  own.reads = nullptr;
  for (int64_t p : team.ranks) {
    ++own.arrivals[p];
    slot(p).wake.notify_one();
  }
  auto arrived = [&](int64_t p) { return slot(p).arrivals[rank] >= own.arrivals[p]; };
  wait(
      lock, rank, [&] { return std::ranges::all_of(team.ranks, arrived); },
      [&](std::vector<int64_t>& late) { append(late, team.ranks | std::views::filter(std::not_fn(arrived))); });
}

void LoopbackRendezvous::end(int64_t rank, const Team& team) {
  Lock lock(mutex_);
  arrive(lock, rank, team);
  slot(rank).inCall = false;
  if (failure_) {
    wakeAll();
  }
}

// A rank that leaves a call by an exception may free its buffers, so it waits until its peers have stopped reading them.
void LoopbackRendezvous::awaitReaders(Lock& lock, int64_t rank) {
  slot(rank).reads = nullptr;
  wakeAll();
  slot(rank).wake.wait(lock, [&] {
    return std::ranges::none_of(slots_,
                                [&](const Slot& s) { return s.reads != nullptr && contains(s.reads->ranks, rank); });
  });
}

void LoopbackRendezvous::throwFailure(Lock& lock, int64_t rank) {
  awaitReaders(lock, rank);
  meshfuse::throwFailure(*failure_);
}

void LoopbackRendezvous::failCall(int64_t rank, std::string text) {
  Lock lock(mutex_);
  failLocked({std::move(text)});
  throwFailure(lock, rank);
}

std::string LoopbackRendezvous::leaveByException(int64_t rank) {
  Lock lock(mutex_);
  if (!failure_) {
    failLocked({fmt::format("[loopback] {} left its call because of an exception", placeLocked(rank))});
  }
  awaitReaders(lock, rank);
  return failure_->text;
}

void LoopbackRendezvous::wakeAll() {
  whole_->everywhere([](LoopbackRendezvous& r) {
    for (Slot& s : r.slots_) {
      s.wake.notify_all();
    }
  });
}

bool LoopbackRendezvous::receiveOne(int64_t rank, const Communicator::Transfer& receive) {
  std::vector<Parcel>& queue = slot(receive.peer).parcels[rank];
  if (queue.empty()) {
    return false;
  }
  const Parcel parcel = queue.front();
  if (parcel.program != slot(rank).call.record.program) {
    failLocked(differenceOf("loopback", slot(rank).call.programs, differing(receive.peer), differing(rank)));
    meshfuse::throwFailure(*failure_);
  }
  if (parcel.bytes != receive.bytes) {
    failLocked({fmt::format("[loopback] ranks {} and {} disagree: rank {} sends {} bytes, rank {} receives {}; {}, {}",
                            receive.peer, rank, receive.peer, parcel.bytes, rank, receive.bytes,
                            placeLocked(receive.peer), placeLocked(rank))});
    meshfuse::throwFailure(*failure_);
  }
  moveBytes(receive.data, parcel.data, parcel.bytes);
  queue.erase(queue.begin());
  --*parcel.pendingSends;
  slot(receive.peer).wake.notify_one();
  return true;
}

void LoopbackRendezvous::transfer(int64_t rank, std::span<const Communicator::Transfer> transfers, uint64_t program,
                                  const Communicator::Programs* programs) {
  Lock lock(mutex_);
  Slot& own = slot(rank);
  own.inCall = true;
  own.call = {.record = {.kind = Collective::Send, .count = std::ssize(transfers), .program = shortHash(program)},
              .programs = programs};
  int64_t pendingSends = 0;
  // A rank that leaves by an exception withdraws its messages that no rank has received: they are the caller's memory.
  struct Withdrawn {
    Slot& own;
    int64_t& sends;
    ~Withdrawn() {
      for (std::vector<Parcel>& queue : own.parcels) {
        std::erase_if(queue, [&](const Parcel& parcel) { return sends > 0 && parcel.pendingSends == &sends; });
      }
    }
  } withdrawn{own, pendingSends};
  std::vector<const Communicator::Transfer*>& receives = own.receives;
  receives.clear();
  for (const Communicator::Transfer& t : transfers) {
    if (t.direction == Direction::Recv) {
      receives.push_back(&t);
    } else {
      own.parcels[t.peer].push_back({t.data, t.bytes, own.call.record.program, &pendingSends});
      ++pendingSends;
      slot(t.peer).wake.notify_one();
    }
  }
  auto hasParcel = [&](const Communicator::Transfer* r) { return !slot(r->peer).parcels[rank].empty(); };
  auto ready = [&] { return std::ranges::any_of(receives, hasParcel) || (receives.empty() && pendingSends == 0); };
  auto awaited = [&](std::vector<int64_t>& peers) {
    for (int64_t p = 0; p < size(); ++p) {
      const auto isFromPeer = [&](const Communicator::Transfer* r) { return r->peer == p; };
      if (!own.parcels[p].empty() || std::ranges::any_of(receives, isFromPeer)) {
        peers.push_back(p);
      }
    }
  };
  while (!receives.empty() || pendingSends > 0) {
    wait(lock, rank, std::cref(ready), std::cref(awaited));  // by reference: copies of them would be on the heap
    std::erase_if(receives, [&](const Communicator::Transfer* r) { return receiveOne(rank, *r); });
  }
  own.inCall = false;
}

void LoopbackRendezvous::wait(Lock& lock, int64_t rank, const std::function<bool()>& ready,
                              const std::function<void(std::vector<int64_t>&)>& awaited) {
  if (ready()) {
    return;
  }
  auto limit = Clock::now() + deadline_;
  if (Fiber::pauses()) {
    lock.unlock();
    Fiber::pauseUntil([&] {
      const Lock look(mutex_);
      return ready() || failure_.has_value();
    });
    lock.lock();
  }
  if (readySoon(lock, ready)) {
    return;
  }
  const ObservedWait observed;
  Slot& own = slot(rank);
  struct Waiting {  // peers call `ready` as long as this rank shows it, so an exception hides it too
    Slot& own;
    ~Waiting() { own.ready = nullptr; }
  } const waiting{own};
  while (!ready()) {  // before the check for failures: a complete call succeeds, even if the world has failed since
    if (failure_) {
      throwFailure(lock, rank);
    }
    own.ready = &ready;
    own.awaited.clear();
    awaited(own.awaited);
    if (deadlocked()) {
      failLocked(deadlock());
    } else if (own.wake.wait_until(lock, limit) == std::cv_status::timeout && !failure_ && !ready()) {
      own.awaited.clear();
      awaited(own.awaited);
      const Clock::time_point now = Clock::now();
      Clock::time_point from = limit - deadline_;
      for (const int64_t p : own.awaited) {
        from = std::max(from, slot(p).busy ? now : slot(p).busyUntil);
      }
      if (from + deadline_ > now) {
        limit = from + deadline_;
      } else {
        failLocked({fmt::format("[loopback] a deadline of {} ms expired: {}", deadline_.count(), waits())});
      }
    }
    own.ready = nullptr;
  }
}

bool LoopbackRendezvous::readySoon(Lock& lock, const std::function<bool()>& ready) const {
  const auto end = Clock::now() + kLongestSpin;
  while (spins_ && !failure_ && Clock::now() < end) {
    lock.unlock();
    for (int k = 0; k < 16; ++k) {
      __builtin_ia32_pause();
    }
    lock.lock();
    if (ready()) {
      return true;
    }
  }
  return false;
}

void LoopbackRendezvous::await(int64_t rank, const Team& team, const std::function<bool()>& ready) {
  const ObservedWait observed;
  auto limit = Clock::now() + deadline_;
  while (!ready()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Lock lock(mutex_);
    if (failure_) {
      if (ready()) {  // complete work succeeds, even if the world has failed since
        return;
      }
      throwFailure(lock, rank);
    }
    const Clock::time_point now = Clock::now();
    if (std::ranges::any_of(team.ranks, [&](int64_t p) { return slot(p).busy; })) {
      limit = now + deadline_;
    } else if (now >= limit) {
      failLocked(
          {fmt::format("[loopback] a deadline of {} ms expired: {} waits for work that it does with the ranks {}: {}",
                       deadline_.count(), placeLocked(rank), fmt::join(team.ranks, ", "),
                       joined(team.ranks, "; ", [this](int64_t p) { return placeLocked(p); }))});
    }
  }
}

// Every rank that has not left waits, and no condition is met.
bool LoopbackRendezvous::deadlocked() {
  return std::ranges::all_of(slots_, [](const Slot& s) { return s.left || (s.ready != nullptr && !(*s.ready)()); });
}

// If no rank has left, all wait for each other: if two ranks run different programs, that is the reason.
GroupFailure LoopbackRendezvous::deadlock() {
  const bool allStay = std::ranges::none_of(slots_, [](const Slot& s) { return s.left || !s.inCall; });
  for (int64_t a = 0; allStay && a < size(); ++a) {
    for (int64_t b = a + 1; b < size(); ++b) {
      if (std::optional<GroupFailure> why = disagreement(slot(a).call.programs, differing(a), differing(b))) {
        return std::move(*why);
      }
    }
  }
  return {"[loopback] deadlock: " + waits()};
}

DifferingCall LoopbackRendezvous::differing(int64_t rank) {
  const Call& call = slot(rank).call;
  return {rank, call.record, call.message, placeLocked(rank)};
}

std::string LoopbackRendezvous::waits() {
  const auto members = filtered(firstRanks(size()), [&](int64_t r) { return slot(r).member; });
  return joined(members, "; ", [&](int64_t r) {
    const std::vector<int64_t>& awaited = slot(r).awaited;
    return placeLocked(r) +
           (slot(r).ready == nullptr
                ? ""
                : fmt::format(" waits for rank{} {}", awaited.size() == 1 ? "" : "s", fmt::join(awaited, ", ")));
  });
}

void LoopbackRendezvous::setStep(int64_t rank, int64_t step, std::string_view what) {
  Lock lock(mutex_);
  slot(rank).step = step;
  slot(rank).what = what;
}

void LoopbackRendezvous::setBusy(int64_t rank, bool busy) {
  Lock lock(mutex_);
  everywhere([&](LoopbackRendezvous& r) {
    r.slot(rank).busy = busy;
    r.slot(rank).busyUntil = Clock::now();
  });
}

bool LoopbackRendezvous::fail(std::string text) {
  Lock lock(mutex_);
  return failLocked({std::move(text)});
}

bool LoopbackRendezvous::failLocked(GroupFailure failure) {
  if (failure_) {
    return false;
  }
  failure_ = std::move(failure);
  wakeAll();
  return true;
}

void LoopbackRendezvous::throwIfFailed() {
  Lock lock(mutex_);
  if (failure_) {
    meshfuse::throwFailure(*failure_);
  }
}

std::optional<GroupFailure> LoopbackRendezvous::failure() {
  Lock lock(mutex_);
  return failure_;
}

LoopbackRendezvous::Rejoin LoopbackRendezvous::rejoin(int64_t rank) {
  Lock lock(mutex_);
  checkHasFailed(failure_.has_value());
  slot(rank).goesOn = true;
  wakeAll();
  auto limit = Clock::now() + deadline_;
  auto pending = [](const Slot& s) { return !s.goesOn && !s.left; };
  while (rejoin_.rendezvous == nullptr && std::ranges::any_of(slots_, pending)) {
    const bool isLate = slot(rank).wake.wait_until(lock, limit) == std::cv_status::timeout;
    if (isLate && std::ranges::none_of(slots_, [&](const Slot& s) { return pending(s) && s.busy; })) {
      break;  // a rank that has not arrived by now is excluded
    }
    limit = isLate ? Clock::now() + deadline_ : limit;
  }
  if (rejoin_.rendezvous == nullptr) {
    rejoin_.oldRanks = filtered(firstRanks(size()), [&](int64_t r) { return slot(r).goesOn && !slot(r).left; });
    rejoin_.rendezvous =
        std::make_shared<LoopbackRendezvous>(std::ssize(rejoin_.oldRanks), deadline_, world_ + ".survivors");
    wakeAll();
  }
  deviceCheck(contains(rejoin_.oldRanks, rank),
              "[loopback] rank {} rejoined too late: the others have made a new world without it", rank);
  return rejoin_;
}

void LoopbackRendezvous::leave(int64_t rank) {
  Lock lock(mutex_);
  slot(rank).inCall = false;
  everywhere([&](LoopbackRendezvous& r) { r.slot(rank).left = true; });
  wakeAll();
  everywhere(&LoopbackRendezvous::failIfDeadlocked);
}

void LoopbackRendezvous::failIfDeadlocked() {
  const bool anyWaits = std::ranges::any_of(slots_, [](const Slot& s) { return s.ready != nullptr; });
  if (anyWaits && !failure_ && deadlocked()) {
    failLocked(deadlock());
  }
}

bool LoopbackRendezvous::hasLeft(int64_t rank) {
  Lock lock(mutex_);
  return slot(rank).left;
}

std::string LoopbackRendezvous::place(int64_t rank) {
  Lock lock(mutex_);
  return placeLocked(rank);
}

std::string LoopbackRendezvous::placeLocked(int64_t rank) {
  const Slot& s = slot(rank);
  const std::string text = describeRank(rank, size(), s.step, s.what);
  return text + (s.left     ? " has ended"
                 : s.inCall ? " in " + describe(s.call.record)
                 : s.busy   ? " is busy outside any call"
                            : " outside any call");
}

}  // namespace meshfuse
