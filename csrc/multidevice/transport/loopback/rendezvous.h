// The rendezvous of the virtual ranks of one run: the call of each rank, the ranks that it waits for, and the failure of all ranks.
//
// One mutex guards everything; a rank sleeps on its own condition variable. Since every rank's condition can be evaluated
// here, a deadlock is found as soon as it is complete, not when a deadline expires. A rank whose call has paused in a fiber does not wait here:
// its deadline runs on, but is noticed, like a deadlock, when the fiber must end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "multidevice/transport/call.h"
#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/flight_recorder.h"
#include "multidevice/transport/pull.h"

namespace meshfuse {

class LoopbackRendezvous {
 public:
  // `world`: its name in flight records.
  LoopbackRendezvous(int64_t ranks, std::chrono::milliseconds deadline, std::string world)
      : LoopbackRendezvous(ranks, deadline, std::move(world), this) {}

  LoopbackRendezvous(const LoopbackRendezvous&) = delete;
  LoopbackRendezvous& operator=(const LoopbackRendezvous&) = delete;
  // The rendezvous of the lanes of a team: with the same failure and deadline, but its own waits. It lives as long as this one.
  LoopbackRendezvous& lane(const Team& team);
  LoopbackRendezvous& whole() { return *whole_; }

  const std::string& world() const { return world_; }
  // Written by one rank; read by its peers when it has left.
  FlightRing& flightOf(int64_t rank) { return *slot(rank).flight; }
  bool hasLeft(int64_t rank);

  int64_t size() const { return std::ssize(slots_); }

  // A call of a rank, as its peers see it.
  struct Call {
    CallRecord record;
    const Communicator::Programs* programs = nullptr;  // of the rank; may be null
    PeerBuffers buffers = {};
    std::string_view message = {};       // of an exchange
    std::span<const int64_t> sent = {};  // of an all-to-all-v
  };
  // Begins a collective call. Returns when all members of the team have begun theirs and the calls have been compared.
  void begin(int64_t rank, const Team& team, const Call& call);
  // Returns when all members of the team of the current call have made as many synchronizations as this rank.
  void synchronize(int64_t rank, const Team& team);
  // The same, for the last synchronization of a call: no peer reads after it.
  void end(int64_t rank, const Team& team);
  // Valid between begin() and end().
  const Call& callOf(int64_t rank) const { return slots_[rank].call; }

  void transfer(int64_t rank, std::span<const Communicator::Transfer> transfers, uint64_t program,
                const Communicator::Programs* programs);

  // Waits for work that the ranks of the team do together outside of this rendezvous.
  void await(int64_t rank, const Team& team, const std::function<bool()>& ready);

  void setStep(int64_t rank, int64_t step, std::string_view what);
  void setBusy(int64_t rank, bool busy);
  // Ends every wait with this text; only the first call has an effect. True if this was the first.
  bool fail(std::string text);
  void throwIfFailed();
  std::optional<GroupFailure> failure();
  // Makes this the failure, unless there is one, and throws the failure after peers have stopped reading this rank's buffers.
  [[noreturn]] void failCall(int64_t rank, std::string text);
  // An exception of any kind ends the call of this rank. Makes it the failure of all ranks, unless they have one already; returns the text
  // of the failure after peers have stopped reading this rank's buffers.
  std::string leaveByException(int64_t rank);
  // The body of a rank has ended, with or without an error.
  void leave(int64_t rank);
  // `[rank 1/2] at step 12 (all-reduce of T7) in barrier in team {0, 1}`
  std::string place(int64_t rank);

  // The survivors of a failure and their new rendezvous; the same for all of them.
  struct Rejoin {
    std::shared_ptr<LoopbackRendezvous> rendezvous;
    std::vector<int64_t> oldRanks;
  };
  Rejoin rejoin(int64_t rank);

 private:
  LoopbackRendezvous(int64_t ranks, std::chrono::milliseconds deadline, std::string world, LoopbackRendezvous* whole);
  LoopbackRendezvous(LoopbackRendezvous& whole, const Team& team);

  struct Parcel {
    const void* data;
    int64_t bytes;
    uint32_t program;
    int64_t* pendingSends;  // of the sender's group
  };
  struct Slot {
    Call call;  // the last one
    bool inCall = false;
    const Team* reads = nullptr;               // the team whose buffers it may be reading
    std::vector<uint64_t> arrivals;            // by peer: how many synchronizations with it this rank has reached
    std::vector<std::vector<Parcel>> parcels;  // by receiver, oldest first
    std::vector<const Communicator::Transfer*> receives;  // the outstanding receives of its group of transfers
    int64_t step = -1;
    std::string what;
    bool busy = false;
    std::chrono::steady_clock::time_point busyUntil{};  // the deadline of ranks that wait for it restarts here
    bool left = false;
    bool member = true;   // of the lane's team
    bool goesOn = false;  // it has called rejoin()
    std::unique_ptr<FlightRing> flight = std::make_unique<FlightRing>();
    const std::function<bool()>* ready = nullptr;  // while waiting
    std::vector<int64_t> awaited;                  // while waiting: the ranks it waits for
    std::condition_variable wake;
  };
  using Lock = std::unique_lock<std::mutex>;

  Slot& slot(int64_t rank) { return slots_[rank]; }
  // `awaited` adds the ranks that are waited for to the empty list it is given.
  void wait(Lock& lock, int64_t rank, const std::function<bool()>& ready,
            const std::function<void(std::vector<int64_t>&)>& awaited);
  // Spins for a short time, in lanes too: a rank that sleeps may lose its core to a kernel for milliseconds. Never if ranks share cores.
  bool readySoon(Lock& lock, const std::function<bool()>& ready) const;
  void arrive(Lock& lock, int64_t rank, const Team& team);
  void startReading(Lock& lock, int64_t rank, const Team& team);
  void awaitReaders(Lock& lock, int64_t rank);
  [[noreturn]] void throwFailure(Lock& lock, int64_t rank);
  bool deadlocked();
  void failIfDeadlocked();
  std::string waits();
  // The reason why no rank can continue.
  GroupFailure deadlock();
  DifferingCall differing(int64_t rank);
  bool failLocked(GroupFailure failure);
  void wakeAll();
  // Calls a function with this, and then with each of its lanes.
  template <class F>
  void everywhere(F f) {
    std::invoke(f, *this);
    for (const auto& [team, lane] : lanes_) {
      std::invoke(f, *lane);
    }
  }
  std::string placeLocked(int64_t rank);
  bool receiveOne(int64_t rank, const Communicator::Transfer& receive);

  LoopbackRendezvous* const whole_;  // this, unless it is a lane
  std::mutex ownMutex_;              // of the whole, like the failure: its lanes use both
  std::optional<GroupFailure> ownFailure_;
  std::mutex& mutex_ = whole_->ownMutex_;
  std::optional<GroupFailure>& failure_ = whole_->ownFailure_;
  std::vector<Slot> slots_;
  std::chrono::milliseconds deadline_;
  std::string world_;
  bool spins_;                                                                 // every rank has a core
  std::map<std::vector<int64_t>, std::unique_ptr<LoopbackRendezvous>> lanes_;  // of the whole
  Rejoin rejoin_;                                                              // the survivors, once they are known
};

}  // namespace meshfuse
