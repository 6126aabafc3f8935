#include "multidevice/transport/loopback/meeting.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "multidevice/transport/lanes.h"
#include "multidevice/transport/wait_observer.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;
using Direction = Communicator::Transfer::Direction;

}  // namespace

LoopbackMeeting::LoopbackMeeting(int ranks, std::chrono::milliseconds deadline, std::string world)
    : seats_(static_cast<size_t>(ranks)), deadline_(deadline), world_(std::move(world)), whole_(this) {
  for (Seat& s : seats_) {
    s.arrivals.resize(seats_.size());
    s.parcels.resize(seats_.size());
    s.awaited.reserve(2 * seats_.size());  // how many it waits for at a time is a matter of luck
  }
}

LoopbackMeeting::LoopbackMeeting(LoopbackMeeting& whole, const Team& team)
    : common_(whole.common_),
      seats_(whole.seats_.size()),
      deadline_(whole.deadline_),
      world_(laneName(whole.world_, team)),
      whole_(&whole) {
  for (Seat& s : seats_) {
    s.arrivals.resize(seats_.size());
    s.parcels.resize(seats_.size());
    s.member = false;
  }
  for (int r : team.ranks) {
    seat(r).member = true;
    seat(r).busy = whole.seat(r).busy;
  }
  for (int r = 0; r < size(); ++r) {
    seat(r).left = !seat(r).member || whole.seat(r).left;
  }
}

LoopbackMeeting& LoopbackMeeting::lane(const Team& team) {
  Lock lock(mutex_);
  std::unique_ptr<LoopbackMeeting>& lane = lanes_[team.ranks];
  if (lane == nullptr) {
    lane.reset(new LoopbackMeeting(*this, team));
  }
  return *lane;
}

void LoopbackMeeting::begin(int rank, const Team& team, const CallRecord& call, const Communicator::Programs* programs,
                            PeerBuffers buffers, std::string_view message, std::span<const int64_t> sent) {
  Lock lock(mutex_);
  Seat& own = seat(rank);
  own.call = call;
  own.inCall = true;
  own.programs = programs;
  own.buffers = buffers;
  own.message = message;
  own.sent = sent;
  arrive(lock, rank, team);
  for (int p : team.ranks) {
    if (failure_) {  // who has found it is gone, and its message with it
      throwFailure(lock, rank);
    }
    if (call != seat(p).call) {
      failLocked(differenceOf("loopback", programs, callOf(rank), callOf(p)));
      throwFailure(lock, rank);
    }
  }
  startReading(lock, rank, team);
}

void LoopbackMeeting::synchronize(int rank, const Team& team) {
  Lock lock(mutex_);
  arrive(lock, rank, team);
  startReading(lock, rank, team);
}

// Since all had come, one may have left the call by an exception, and its buffers with it.
void LoopbackMeeting::startReading(Lock& lock, int rank, const Team& team) {
  if (failure_) {
    throwFailure(lock, rank);
  }
  seat(rank).reads = &team;
}

void LoopbackMeeting::arrive(Lock& lock, int rank, const Team& team) {
  Seat& own = seat(rank);
  own.reads = nullptr;
  for (int p : team.ranks) {
    ++own.arrivals[static_cast<size_t>(p)];
    seat(p).wake.notify_one();
  }
  auto arrived = [&](int p) {
    return seat(p).arrivals[static_cast<size_t>(rank)] >= own.arrivals[static_cast<size_t>(p)];
  };
  wait(
      lock, rank, [&] { return std::all_of(team.ranks.begin(), team.ranks.end(), arrived); },
      [&](std::vector<int>& late) {
        std::copy_if(team.ranks.begin(), team.ranks.end(), std::back_inserter(late),
                     [&](int p) { return !arrived(p); });
      });
}

void LoopbackMeeting::end(int rank, const Team& team) {
  Lock lock(mutex_);
  arrive(lock, rank, team);
  seat(rank).inCall = false;
  if (failure_) {
    wakeAll();
  }
}

// Whoever leaves a call by an exception may free its buffers, so not before its peers have stopped reading them.
void LoopbackMeeting::throwFailure(Lock& lock, int rank) {
  seat(rank).reads = nullptr;
  wakeAll();
  seat(rank).wake.wait(lock, [&] {
    return std::none_of(seats_.begin(), seats_.end(), [&](const Seat& s) {
      return s.reads != nullptr &&
             std::find(s.reads->ranks.begin(), s.reads->ranks.end(), rank) != s.reads->ranks.end();
    });
  });
  meshfuse::throwFailure(*failure_);
}

void LoopbackMeeting::leaveCall(int rank) {
  Lock lock(mutex_);
  throwFailure(lock, rank);
}

void LoopbackMeeting::wakeAll() {
  for (Seat& s : whole_->seats_) {
    s.wake.notify_all();
  }
  for (const auto& [team, lane] : whole_->lanes_) {
    for (Seat& s : lane->seats_) {
      s.wake.notify_all();
    }
  }
}

bool LoopbackMeeting::receiveOne(int rank, const Communicator::Transfer& receive) {
  std::vector<Parcel>& queue = seat(receive.peer).parcels[static_cast<size_t>(rank)];
  if (queue.empty()) {
    return false;
  }
  Parcel parcel = queue.front();
  if (parcel.program != seat(rank).call.program) {
    failLocked(differenceOf("loopback", seat(rank).programs, callOf(receive.peer), callOf(rank)));
    meshfuse::throwFailure(*failure_);
  }
  if (parcel.bytes != receive.bytes) {
    failLocked({fmt::format("[loopback] ranks {} and {} disagree: rank {} sends {} bytes, rank {} receives {}; {}, {}",
                            receive.peer, rank, receive.peer, parcel.bytes, rank, receive.bytes,
                            placeLocked(receive.peer), placeLocked(rank))});
    meshfuse::throwFailure(*failure_);
  }
  if (parcel.bytes > 0) {
    std::memmove(receive.data, parcel.data, static_cast<size_t>(parcel.bytes));
  }
  queue.erase(queue.begin());
  --*parcel.pendingSends;
  seat(receive.peer).wake.notify_one();
  return true;
}

void LoopbackMeeting::transfer(int rank, std::span<const Communicator::Transfer> transfers, uint64_t program,
                               const Communicator::Programs* programs) {
  Lock lock(mutex_);
  Seat& own = seat(rank);
  own.inCall = true;
  own.programs = programs;
  own.call = {.kind = CallKind::Send,
              .type = DataType::Bool,
              .count = static_cast<int64_t>(transfers.size()),
              .program = shortHash(program),
              .teamMask = uint64_t{1} << (rank & 63)};
  for (const Communicator::Transfer& t : transfers) {
    own.call.teamMask |= t.peer < 64 ? uint64_t{1} << t.peer : 0;
  }
  int pendingSends = 0;
  // Who leaves by an exception takes back what nobody has received: it is the caller's memory.
  struct Withdrawn {
    Seat& own;
    int& sends;
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
      continue;
    }
    own.parcels[static_cast<size_t>(t.peer)].push_back({t.data, t.bytes, own.call.program, &pendingSends});
    ++pendingSends;
    seat(t.peer).wake.notify_one();
  }
  auto hasParcel = [&](const Communicator::Transfer* r) {
    return !seat(r->peer).parcels[static_cast<size_t>(rank)].empty();
  };
  auto ready = [&] {
    return std::any_of(receives.begin(), receives.end(), hasParcel) || (receives.empty() && pendingSends == 0);
  };
  auto awaited = [&](std::vector<int>& peers) {
    for (const Communicator::Transfer* r : receives) {
      peers.push_back(r->peer);
    }
    for (int p = 0; p < size(); ++p) {
      if (!own.parcels[static_cast<size_t>(p)].empty()) {
        peers.push_back(p);
      }
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  };
  while (!receives.empty() || pendingSends > 0) {
    wait(lock, rank, std::cref(ready), std::cref(awaited));  // by reference: copies of them would be on the heap
    std::erase_if(receives, [&](const Communicator::Transfer* r) { return receiveOne(rank, *r); });
  }
  own.inCall = false;
}

void LoopbackMeeting::wait(Lock& lock, int rank, const std::function<bool()>& ready,
                           const std::function<void(std::vector<int>&)>& awaited) {
  if (ready()) {
    return;
  }
  const ObservedWait observed;
  Seat& own = seat(rank);
  auto limit = Clock::now() + deadline_;
  for (;;) {
    if (ready()) {  // before looking for failures: what is complete succeeds, whatever happened since
      return;
    }
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
      bool excused = std::any_of(own.awaited.begin(), own.awaited.end(), [&](int p) { return seat(p).busy; });
      if (excused) {
        limit = Clock::now() + deadline_;
      } else {
        failLocked({fmt::format("[loopback] a deadline of {} ms expired: {}", deadline_.count(), waits())});
      }
    }
    own.ready = nullptr;
  }
}

// All who have not left wait, and nothing that any of them waits for has happened.
bool LoopbackMeeting::deadlocked() {
  return std::all_of(seats_.begin(), seats_.end(),
                     [](const Seat& s) { return s.left || (s.ready != nullptr && !(*s.ready)()); });
}

// Where nobody has left, all wait for each other: two that run different programs are the reason.
GroupFailure LoopbackMeeting::deadlock() {
  const bool allStay = std::none_of(seats_.begin(), seats_.end(), [](const Seat& s) { return s.left || !s.inCall; });
  for (int a = 0; allStay && a < size(); ++a) {
    for (int b = a + 1; b < size(); ++b) {
      if (std::optional<GroupFailure> why = disagreement(seat(a).programs, callOf(a), callOf(b))) {
        return std::move(*why);
      }
    }
  }
  return {"[loopback] no rank can go on: " + waits()};
}

DifferingCall LoopbackMeeting::callOf(int rank) {
  const Seat& s = seat(rank);
  return {rank, s.call, s.call.kind == CallKind::Exchange ? s.message : std::string_view(), placeLocked(rank)};
}

std::string LoopbackMeeting::waits() {
  std::string text;
  for (int r = 0; r < size(); ++r) {
    const Seat& s = seat(r);
    if (!s.member) {
      continue;
    }
    text += fmt::format("{}{}", text.empty() ? "" : "; ", placeLocked(r));
    if (s.ready != nullptr) {
      std::string peers;
      for (int p : s.awaited) {
        peers += fmt::format("{} {}", peers.empty() ? "" : ",", p);
      }
      text += fmt::format(" waits for rank{}{}", s.awaited.size() == 1 ? "" : "s", peers);
    }
  }
  return text;
}

void LoopbackMeeting::setStep(int rank, int64_t step, std::string_view what) {
  Lock lock(mutex_);
  seat(rank).step = step;
  seat(rank).what = what;
}

void LoopbackMeeting::setBusy(int rank, bool busy) {
  Lock lock(mutex_);
  seat(rank).busy = busy;
  for (const auto& [team, lane] : lanes_) {
    lane->seat(rank).busy = busy;
  }
}

bool LoopbackMeeting::fail(std::string text) {
  Lock lock(mutex_);
  return failLocked({std::move(text)});
}

bool LoopbackMeeting::failLocked(GroupFailure failure) {
  if (failure_) {
    return false;
  }
  failure_ = std::move(failure);
  wakeAll();
  return true;
}

void LoopbackMeeting::throwIfFailed() {
  Lock lock(mutex_);
  if (failure_) {
    meshfuse::throwFailure(*failure_);
  }
}

LoopbackMeeting::Reunion LoopbackMeeting::reunite(int rank) {
  Lock lock(mutex_);
  checkHasFailed(failure_.has_value());
  seat(rank).goesOn = true;
  wakeAll();
  auto limit = Clock::now() + deadline_;
  auto pending = [](const Seat& s) { return !s.goesOn && !s.left; };
  while (reunion_.meeting == nullptr && std::any_of(seats_.begin(), seats_.end(), pending)) {
    if (seat(rank).wake.wait_until(lock, limit) == std::cv_status::no_timeout) {
      continue;
    }
    if (std::none_of(seats_.begin(), seats_.end(), [&](const Seat& s) { return pending(s) && s.busy; })) {
      break;  // who has not come by now stays out
    }
    limit = Clock::now() + deadline_;
  }
  if (reunion_.meeting == nullptr) {
    for (int r = 0; r < size(); ++r) {
      if (seat(r).goesOn && !seat(r).left) {
        reunion_.oldRanks.push_back(r);
      }
    }
    reunion_.meeting =
        std::make_shared<LoopbackMeeting>(static_cast<int>(reunion_.oldRanks.size()), deadline_, world_ + ".survivors");
    wakeAll();
  }
  deviceCheck(std::binary_search(reunion_.oldRanks.begin(), reunion_.oldRanks.end(), rank),
              "[loopback] rank {} came too late: the others have made a new world without it", rank);
  return reunion_;
}

void LoopbackMeeting::leave(int rank) {
  Lock lock(mutex_);
  seat(rank).left = true;
  seat(rank).inCall = false;
  for (const auto& [team, lane] : lanes_) {
    lane->seat(rank).left = true;
  }
  wakeAll();
  failIfDeadlocked();
  for (const auto& [team, lane] : lanes_) {
    lane->failIfDeadlocked();
  }
}

void LoopbackMeeting::failIfDeadlocked() {
  bool anyWaits = std::any_of(seats_.begin(), seats_.end(), [](const Seat& s) { return s.ready != nullptr; });
  if (anyWaits && !failure_ && deadlocked()) {
    failLocked(deadlock());
  }
}

bool LoopbackMeeting::hasLeft(int rank) {
  Lock lock(mutex_);
  return seat(rank).left;
}

std::string LoopbackMeeting::place(int rank) {
  Lock lock(mutex_);
  return placeLocked(rank);
}

std::string LoopbackMeeting::placeLocked(int rank) {
  const Seat& s = seat(rank);
  std::string text = fmt::format("[rank {}/{}]", rank, size());
  if (s.step >= 0) {
    text += fmt::format(" at step {} ({})", s.step, s.what);
  } else if (!s.what.empty()) {
    text += fmt::format(" ({})", s.what);
  }
  if (s.left) {
    return text + " has ended";
  }
  if (s.inCall && s.call.kind == CallKind::Send) {
    return text + fmt::format(" in a group of {} sends and receives", s.call.count);
  }
  return text + (s.inCall ? " in " + describe(s.call) : s.busy ? " is busy outside any call" : " outside any call");
}

}  // namespace meshfuse
