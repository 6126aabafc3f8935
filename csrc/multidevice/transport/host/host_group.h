// The ranks of one host as one of them sees them: their shared blocks, waiting for them, and the end of all of them when one
// fails.
//
// Waiting: where every rank has a core of its own, spin for about 50 us, then sleep. Where ranks share cores, never spin: give the
// core away, and sleep as soon as that has cost a time slice (somebody computes here) or the peer turns out to be slow. After every
// sleep, of at most 5 ms, come the checks: has somebody failed, has a process died, do ranks wait for each other in a circle, has
// the deadline passed.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/control.h"
#include "multidevice/transport/host/heap.h"
#include "multidevice/transport/host/world.h"

namespace meshfuse {

class HostGroup {
 public:
  // Collective over the bootstrap's ranks.
  HostGroup(Bootstrap& bootstrap, const TransportOptions& options, const std::string& world);
  // A lane of a group: it waits and fails with the whole, which outlives it, and has blocks of its own for its calls.
  HostGroup(const HostGroup& whole, const Team& team, const std::string& name);
  // Says that this rank has left; that it failed, if an exception is on its way.
  ~HostGroup();
  HostGroup(const HostGroup&) = delete;
  HostGroup& operator=(const HostGroup&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool coreForEachRank() const { return spins_ > 0; }
  const ControlBlock& own() const { return blocks_[static_cast<size_t>(rank_)]; }
  const ControlBlock& of(int peer) const { return blocks_[static_cast<size_t>(peer)]; }
  // Where the calls of this lane are; of the whole, the same. A peer's may be looked at once join() has returned.
  const ControlBlock& ownCalls() const { return calls_[static_cast<size_t>(rank_)]; }
  const ControlBlock& callsOf(int peer) const { return calls_[static_cast<size_t>(peer)]; }
  // Waits until the peer has opened this lane. DeviceError when the group fails.
  void join(int peer) {
    if (!callsOf(peer).isThere()) [[unlikely]] {
      awaitLane(peer);
    }
  }
  // A peer's heap, to read, and to write if the table of algorithms has a push; one's own, to write.
  std::byte* heapOf(int peer) const { return heaps_[static_cast<size_t>(peer)]; }
  SharedHeap& heap() { return *heap_; }
  // Whether all ranks may have the kernel read the ordinary memory of the others.
  bool canReadProcesses() const { return canReadProcesses_; }
  void readProcess(int peer, const std::byte* from, std::byte* to, int64_t bytes);
  FlightRecorder& recorder() { return *recorder_; }

  // Wakes `peer` if it sleeps. The word it sleeps for must have been stored with sequential consistency.
  void ring(int peer) const {
    Doorbell& bell = of(peer).doorbell();
    if (bell.sleeping.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
      wake(bell);
    }
  }

  // Waits until `word`, in the block of `owner` for this lane, reaches `value` (modulo 2^32). DeviceError when the group fails.
  void await(int owner, const std::atomic<uint32_t>& word, uint32_t value) {
    auto reached = [&] { return static_cast<int32_t>(word.load(std::memory_order_acquire) - value) >= 0; };
    for (int i = 0; i < spins_; ++i) {
      if (reached()) {
        return;
      }
      __builtin_ia32_pause();
    }
    if (!reached()) {
      awaitLong({.ready = reached, .peers = {&owner, 1}, .word = &word, .value = value});
    }
  }
  // Waits until `ready()`, for any of `peers`. If it is one of them and one word of its block that decides, as for await, others can
  // tell for whom this rank waits.
  void awaitAny(const std::function<bool()>& ready, std::span<const int> peers,
                const std::atomic<uint32_t>* word = nullptr, uint32_t value = 0) {
    for (int i = 0; i < spins_; ++i) {
      if (ready()) {
        return;
      }
      __builtin_ia32_pause();
    }
    awaitLong({.ready = ready, .peers = peers, .word = word, .value = value});
  }

  void throwIfFailed() const {
    if (hasFailed()) [[unlikely]] {
      throwFailure();
    }
  }
  // Makes this the failure of the group, unless there is one already; throws the one that counts.
  [[noreturn]] void fail(const GroupFailure& failure);
  [[noreturn]] void fail(const std::string& text) { fail(GroupFailure{text}); }
  // The same without throwing.
  void recordFailure(const GroupFailure& failure);
  // Who knows what the calls of this rank belong to, asked when ranks wait for each other in a circle.
  void explainBy(const Communicator& rank) { explains_ = &rank; }

  bool hasFailed() const { return blocks_[0].failure().state.load(std::memory_order_acquire) != Failure::None; }
  // Of a peer's process, where it can be seen: whether it has ended or left this world.
  bool hasEnded(int peer) const;
  bool hasLeft(int peer) const { return of(peer).status().closed.load(std::memory_order_acquire) != 0; }
  // Whether it works for long and says so.
  bool isBusy(int peer) const;
  std::chrono::milliseconds sinceLastBeat(int peer) const;

  // `[rank 1/4] at step 12 (all-reduce of T7) in barrier in team {0, 1}`
  std::string place(int rank) const;

 private:
  struct Wait {
    const std::function<bool()>& ready;
    std::span<const int> peers;
    const std::atomic<uint32_t>* word;  // null: for no single word
    uint32_t value;
  };
  struct Peer {
    int pid = 0;
    int descriptor = -1;  // pidfd: readable when the process has ended
    explicit Peer(int process) : pid(process) {}
    Peer(Peer&& other) noexcept : pid(other.pid), descriptor(std::exchange(other.descriptor, -1)) {}
    ~Peer();
  };
  using Clock = std::chrono::steady_clock;

  void awaitLong(const Wait& wait);
  void awaitLane(int peer);
  bool findLane(int peer);
  bool isLane() const { return team_ != 0; }
  void publish(const Wait* wait) const;
  void sleepUnless(const std::function<bool()>& ready) const;
  void checkProcesses(const Wait& wait);
  void checkCircle(const Wait& wait);
  bool waitsFor(int rank, int& owner, uint32_t& generation) const;
  // The busy rank for whose sake the wait may go on; -1 if there is none.
  int busyPeer(const Wait& wait) const;
  [[noreturn]] void failLate(const Wait& wait);
  [[noreturn]] void throwFailure() const;
  // This rank's, and those of ranks that cannot write theirs.
  void writeRecords(const std::string& failure) const;
  static void wake(Doorbell& bell);

  void mapAll(Bootstrap& bootstrap, const TransportOptions& options);
  bool tryMap(Bootstrap& bootstrap, const TransportOptions& options, SharedMemory::Name name);
  void watch(Bootstrap& bootstrap);
  void tryToReadProcesses(Bootstrap& bootstrap);
  bool hasRead(int peer, const std::byte* from, std::byte* to, int64_t bytes) const;
  void beat();

  int rank_;
  int size_;
  std::chrono::milliseconds deadline_;
  std::chrono::milliseconds busyLimit_;
  bool canReadProcesses_ = false;
  int spins_ = 0;
  const Communicator* explains_ = nullptr;
  int stolen_ = 0;  // waits left that sleep at once, because giving the core away cost a time slice
  int uncaught_;
  std::vector<SharedMemory> memory_;  // blocks, then heaps, of the peers; and one's own block
  std::vector<ControlBlock> blocks_;
  std::vector<std::byte*> heaps_;
  std::shared_ptr<SharedHeap> heap_;
  std::shared_ptr<std::vector<Peer>> peers_ = std::make_shared<std::vector<Peer>>();
  uint64_t team_ = 0;                // of a lane: teamHash
  std::shared_ptr<void> laneBlock_;  // of a lane: what it shares
  std::vector<ControlBlock> calls_;  // of a lane: its blocks, a peer's once it is known; else blocks_
  std::unique_ptr<FlightRecorder> recorder_;

  std::mutex beatMutex_;
  std::condition_variable beatStop_;
  bool beatStopped_ = false;
  std::jthread beatThread_;
};

}  // namespace meshfuse
