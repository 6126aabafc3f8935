// One rank's view of the ranks of its host: their shared blocks, waits for them, and the failure of all ranks when one fails.
//
// Waiting: if every rank has its own core, a rank spins for about 50 us, then sleeps. If ranks share cores, it never spins: it yields
// the core, and sleeps as soon as a yield takes a whole time slice (another thread computes) or the peer is slow. After every sleep of
// at most 5 ms it checks whether a rank has failed, a process has died, ranks are in a deadlock, or the deadline has passed. In a fiber that
// pauses, it does none of this before the fiber must end, as its thread has other work: it goes on if the peers have come or a rank has
// recorded a failure; a dead process, a deadlock and a deadline that has passed are noticed when the fiber must end. Peers do not see for whom
// a paused rank waits.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fiber.h"
#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/control.h"
#include "multidevice/transport/host/heap.h"
#include "multidevice/transport/host/waiting_clock.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

class HostGroup {
 public:
  // Collective over the bootstrap's ranks.
  HostGroup(Bootstrap& bootstrap, const TransportOptions& options, const std::string& world);
  // A lane of a group: it fails with the whole group, which outlives it, and has its own blocks for its calls. Peers find it after
  // showLane().
  HostGroup(const HostGroup& whole, const Team& team);
  // Reports that this rank has left.
  ~HostGroup();
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;
  // Peers use the blocks of this lane from now on: the lane is complete, and lives as long as the whole group.
  void showLane(const Team& team);

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  // Its name in flight records.
  const std::string& world() const { return recorder_->place().world; }
  bool coreForEachRank() const { return spins_ > 0; }
  const ControlBlock& own() const { return blocks_[rank_]; }
  const ControlBlock& of(int64_t peer) const { return blocks_[peer]; }
  // The control blocks for the calls of this lane; for the whole group the main blocks. A peer's block is valid after join() has returned.
  const ControlBlock& ownCalls() const { return calls_[rank_]; }
  const ControlBlock& callsOf(int64_t peer) const { return calls_[peer]; }
  // Waits until the peer has opened this lane. DeviceError when the group fails.
  void join(int64_t peer) {
    if (!hasOpened(peer)) [[unlikely]] {
      awaitAny([&] { return findLane(peer); }, {&peer, 1});
    }
  }
  // True if the peer has opened this lane: then its block is valid.
  bool hasOpened(int64_t peer) { return callsOf(peer).isThere() || findLane(peer); }
  // The heap of a peer, readable, and writable if the table of algorithms contains push; or this rank's own heap, writable.
  std::byte* heapOf(int64_t peer) const { return heaps_[peer].data(); }
  SharedHeap& heap() { return *heap_; }
  // True if the kernel of the system lets all ranks read the ordinary memory of the others.
  bool canReadProcesses() const { return canReadProcesses_; }
  void readProcess(int64_t peer, const std::byte* from, std::byte* to, int64_t bytes);
  FlightRecorder& recorder() { return *recorder_; }

  // Wakes `peer` if it sleeps. The word it sleeps for must have been stored with sequential consistency.
  void ring(int64_t peer) const {
    Doorbell& bell = of(peer).doorbell();
    if (bell.sleeping.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
      wake(bell);
    }
  }

  // Waits until `word`, in the block of `owner` for this lane, reaches `value` (modulo 2^32). DeviceError when the group fails.
  void await(int64_t owner, const std::atomic<uint32_t>& word, uint32_t value) {
    auto reached = [&] { return static_cast<int32_t>(word.load(std::memory_order_acquire) - value) >= 0; };
    if (!spinsUntil(reached) && !reached()) {
      awaitLong({.ready = reached, .peers = {&owner, 1}, .word = &word, .value = value});
    }
  }
  // Waits until `ready()`, for any of `peers`. If the wait depends on one word in the block of one peer, as in await, other ranks can see
  // for which rank this rank waits.
  void awaitAny(const std::function<bool()>& ready, std::span<const int64_t> peers,
                const std::atomic<uint32_t>* word = nullptr, uint32_t value = 0) {
    if (!spinsUntil(ready)) {
      awaitLong({.ready = ready, .peers = peers, .word = word, .value = value});
    }
  }

  // The same for work that this rank does together with `peers`, which may leave the group before it has ended here.
  void awaitOutside(const std::function<bool()>& ready, std::span<const int64_t> peers) {
    if (!spinsUntil(ready)) {
      awaitLong({.ready = ready, .peers = peers, .peersMayLeave = true});
    }
  }

  void throwIfFailed() const {
    if (hasFailed()) [[unlikely]] {
      throwFailure();
    }
  }
  // After reads of peers' buffers in place: throws if a peer may have left the call by an error, because it may then have written to its
  // buffer before these reads. A peer leaves by an error only after the group has failed.
  void checkReadInPlace() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    throwIfFailed();
  }
  // Makes this the failure of the group, unless there is one already; throws the first failure.
  [[noreturn]] void fail(const GroupFailure& failure);
  [[noreturn]] void fail(const std::string& text) { fail(GroupFailure{text}); }
  // The same without throwing and without flight records. Thread-safe.
  void recordFailure(const GroupFailure& failure);
  // The first failure of the group, which has failed.
  GroupFailure failure() const;
  // Writes the flight records of this rank, and of ranks that cannot write their own.
  void writeRecords(const std::string& failure) const;
  // Sets the communicator that describes the programs of this rank's calls, for the error of ranks in a deadlock.
  void explainBy(const Communicator& rank) { explains_ = &rank; }

  bool hasFailed() const { return blocks_[0].failure().state.load(std::memory_order_acquire) != Failure::None; }
  // True if a peer's process has ended or has left this world, as far as this rank can see it.
  bool hasEnded(int64_t peer) const;
  bool hasLeft(int64_t peer) const { return of(peer).status().closed.load(std::memory_order_acquire) != 0; }
  // True if the peer has declared a long computation.
  bool isBusy(int64_t peer) const;
  std::chrono::milliseconds sinceLastBeat(int64_t peer) const;

  // `[rank 1/4] at step 12 (all-reduce of T7) in barrier in team {0, 1}`; of this rank: not while another thread makes a call.
  std::string place(int64_t rank) const;
  // `[rank 1/4] at step 12 (all-reduce of T7)`
  std::string rankAndStep(int64_t rank) const;

 private:
  struct Wait {
    const std::function<bool()>& ready;
    std::span<const int64_t> peers;
    const std::atomic<uint32_t>* word = nullptr;  // null: for no single word
    uint32_t value = 0;
    bool peersMayLeave = false;
  };
  struct Peer {
    int64_t pid = 0;
    int descriptor = -1;  // pidfd: readable when the process has ended
    explicit Peer(int64_t process) : pid(process) {}
    Peer(Peer&& other) noexcept : pid(other.pid), descriptor(std::exchange(other.descriptor, -1)) {}
    ~Peer();
  };
  using Clock = WaitingClock;

  // Whether `ready()` while this rank spins.
  template <class Ready>
  bool spinsUntil(const Ready& ready) const {
    for (int64_t i = 0; i < spins_; ++i) {
      if (ready()) {
        return true;
      }
      if (i == 0 && Fiber::pauses()) {
        return false;
      }
      __builtin_ia32_pause();
    }
    return false;
  }
  void awaitLong(const Wait& wait);
  bool findLane(int64_t peer);
  bool isLane() const { return team_ != 0; }
  void publish(const Wait* wait) const;
  void sleepUnless(const std::function<bool()>& ready) const;
  void checkProcesses(const Wait& wait);
  void checkDeadlock(const Wait& wait);
  bool waitsFor(int64_t rank, int64_t& owner, uint32_t& generation) const;
  // The busy rank that extends the deadline of the wait; -1 if there is none.
  int64_t busyPeer(const Wait& wait) const;
  [[noreturn]] void failLate(const Wait& wait);
  [[noreturn]] void throwFailure() const;
  static void wake(Doorbell& bell);

  // Begins the records and the status in a block that is all zero.
  void beginBlock(const ControlBlock& block, const std::string& flightDirectory, const std::string& world);
  // Compares the builds of the ranks, and counts their cores.
  void meet(Bootstrap& bootstrap);
  void mapPeers(Bootstrap& bootstrap, const TransportOptions& options);
  void tryToReadProcesses(Bootstrap& bootstrap);
  static int64_t millisecondsNow();
  bool hasRead(int64_t peer, const std::byte* from, std::byte* to, int64_t bytes) const;
  void beat(const std::stop_token& stop);

  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds deadline_;
  std::chrono::milliseconds busyLimit_;
  bool canReadProcesses_ = false;
  int64_t spins_ = 0;
  const Communicator* explains_ = nullptr;
  int64_t stolen_ = 0;                // remaining waits that sleep at once, because a yield took a time slice
  std::vector<SharedMemory> memory_;  // blocks, then heaps, of the peers; and this rank's own block
  std::vector<ControlBlock> blocks_;
  std::vector<std::span<std::byte>> heaps_;
  std::shared_ptr<SharedHeap> heap_;
  std::shared_ptr<std::vector<Peer>> peers_ = std::make_shared<std::vector<Peer>>();
  uint64_t team_ = 0;                // of a lane: teamHash
  std::shared_ptr<void> laneBlock_;  // for a lane: its shared block
  std::vector<ControlBlock> calls_;  // for a lane: its blocks, with a peer's block once it is known; else blocks_
  std::unique_ptr<FlightRecorder> recorder_;

  std::jthread beatThread_;
};

}  // namespace meshfuse
