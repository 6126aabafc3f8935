// The state of the ranks on several hosts (alive, busy, left or failed): a star of TCP connections to rank 0, served by a thread.
//
// Message libraries do not report the death of a peer; a closed TCP connection does. Every rank regularly sends rank 0 a heartbeat; a rank
// without heartbeats is a suspect. The first failure reaches rank 0, which adds the suspects to the text and sends it to all ranks. So all
// ranks fail with the same text, which does not name a rank that only waits for another rank.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/handshake.h"
#include "multidevice/transport/host/network_place.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

class NetworkWatch {
 public:
  // Collective over the bootstrap's ranks.
  NetworkWatch(Bootstrap& bootstrap, std::chrono::milliseconds deadline);
  // Tells the others that this rank has left without a failure. Rank 0 waits a little for the others to leave first.
  ~NetworkWatch();
  NetworkWatch(const NetworkWatch&) = delete;
  NetworkWatch& operator=(const NetworkWatch&) = delete;

  void throwIfFailed() const {
    if (failed_.load(std::memory_order_acquire)) [[unlikely]] {
      throwFailure();
    }
  }
  // Returns when the group has failed, with this text or another.
  void recordFailure(const GroupFailure& failure);

  bool hasFailed() const { return failed_.load(std::memory_order_acquire); }

  // Sets a function that describes the position of this rank, for the report that a process has ended. The watch's own thread calls it.
  void whereThisRankIs(std::function<std::string()> place);

  void setBusy(bool busy);
  bool isBusy(int64_t rank) const { return busy_[rank].load(std::memory_order_relaxed) != 0; }
  // The key of the job.
  const Key& key() const { return key_; }
  // The addresses for the rejoin of a failed world, by rank; this rank's own address stays open as long as the watch.
  const std::vector<NetworkPlace>& places() const { return places_; }
  const Socket& rendezvousPoint() const { return rendezvousPoint_; }
  // The door at this rank's own address; for one thread at a time.
  Door& rejoinDoor() { return *rejoinDoor_; }
  // A number that other worlds do not have.
  uint64_t world() const { return worldNumber_; }

  bool hasLeft(int64_t rank) const { return left_[rank].load(std::memory_order_acquire) != 0; }
  std::chrono::milliseconds promptLimit() const { return promptLimit_; }

 private:
  enum class Kind : uint32_t { Failed, Busy, Left, Alive };
  struct Frame {
    Kind kind;
    int32_t rank;
    uint32_t value;  // Busy: 1 if busy; Failed: 1 if it is a disagreement
    uint32_t textBytes;
  };
  using Clock = WaitingClock;

  Hello hello(Purpose purpose, int64_t to) const;
  void acceptAll(Clock::time_point limit);
  void join(Clock::time_point limit);
  void look(const std::stop_token& stop);
  void hear(int64_t from, const std::stop_token& stop);
  bool isValid(const Frame& frame, int64_t from) const;
  void tell(const Frame& frame, const std::string& text);
  void note(const Frame& frame, const std::string& text);
  void keep(const GroupFailure& failure);
  // Rank 0: the text about suspects that is added to a failure; "" if the heartbeats of all ranks arrived.
  std::string suspects() const;
  [[noreturn]] void throwFailure() const;

  int64_t rank_;
  int64_t size_;
  std::chrono::milliseconds promptLimit_;
  Key key_;
  Socket rendezvousPoint_;
  std::optional<Door> rejoinDoor_;
  std::vector<NetworkPlace> places_;
  uint64_t worldNumber_ = 0;
  std::vector<Socket> sockets_;  // rank 0: by peer; others: one, to rank 0, at index 0
  std::vector<uint8_t> gone_;    // closed sockets; only the thread uses it
  std::vector<std::atomic<uint8_t>> busy_;
  std::vector<std::atomic<uint8_t>> left_;
  std::vector<std::atomic<Clock::time_point>> heard_;  // rank 0: time of the last message from each rank
  std::atomic<Clock::time_point> looked_;              // when this rank last checked the heartbeats
  std::atomic<bool> failed_ = false;
  mutable std::mutex textMutex_;
  GroupFailure failure_;
  std::function<std::string()> place_;
  std::mutex sendMutex_;
  std::jthread thread_;  // last: it uses the other members until it has ended
};

}  // namespace meshfuse
