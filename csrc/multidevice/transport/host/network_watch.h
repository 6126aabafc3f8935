// Who of the ranks on several hosts is alive, busy, gone or failed: a star of TCP connections to rank 0, looked after by a thread.
//
// Message libraries do not tell that a peer has died; a closed connection does. Every rank gives rank 0 a sign of life from time to time,
// and who gives none is suspected. The first failure reaches rank 0, which adds the suspects and tells all, so that all fail with the
// same text: who waits in vain for a rank that waits itself blames neither.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "multidevice/transport/disagreement.h"
#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/network_place.h"
#include "multidevice/transport/host/socket.h"

namespace meshfuse {

class NetworkWatch {
 public:
  // Collective over the bootstrap's ranks.
  NetworkWatch(Bootstrap& bootstrap, std::chrono::milliseconds deadline);
  // Tells the others that this rank has left in good order. Rank 0 waits a little for the others to leave first.
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

  // What to add to the news that a process has ended: where this rank is. Called by the watch's own thread, from the first call on.
  void whereThisRankIs(std::function<std::string()> place);

  void setBusy(bool busy);
  bool isBusy(int rank) const { return busy_[static_cast<size_t>(rank)].load(std::memory_order_relaxed) != 0; }
  // Where to meet the ranks of a failed world, by rank; one's own stays open as long as the watch.
  const std::vector<NetworkPlace>& places() const { return places_; }
  const Socket& rendezvousPoint() const { return rendezvousPoint_; }
  // A number that other worlds do not have.
  uint64_t world() const { return worldNumber_; }

  bool hasLeft(int rank) const { return left_[static_cast<size_t>(rank)].load(std::memory_order_acquire) != 0; }

 private:
  enum class Kind : uint32_t { Failed, Busy, Left, Alive };
  struct Frame {
    Kind kind;
    int32_t rank;
    uint32_t value;  // Busy: whether; Failed: whether it is a disagreement
    uint32_t textBytes;
  };
  using Clock = std::chrono::steady_clock;

  void connectAll(Bootstrap& bootstrap, std::chrono::milliseconds deadline);
  void acceptAll(Clock::time_point limit);
  void join(Clock::time_point limit);
  void look();
  void hear(int from);
  void tell(const Frame& frame, const std::string& text);
  void note(const Frame& frame, const std::string& text);
  void keep(const GroupFailure& failure);
  // Rank 0: what to add to the text of a failure of ranks that may have been stopped. "" if all were heard of.
  std::string suspects() const;
  [[noreturn]] void throwFailure() const;

  int rank_;
  int size_;
  Socket rendezvousPoint_;
  std::vector<NetworkPlace> places_;
  uint64_t worldNumber_ = 0;
  std::vector<Socket> sockets_;  // rank 0: by peer; others: one, to rank 0, at index 0
  std::vector<uint8_t> gone_;    // closed sockets; of the thread alone
  std::vector<std::atomic<uint8_t>> busy_;
  std::vector<std::atomic<uint8_t>> left_;
  std::vector<std::atomic<Clock::time_point>> heard_;  // rank 0: when each rank gave its last sign of life
  std::atomic<Clock::time_point> looked_;              // when this rank last looked for such
  std::atomic<bool> failed_ = false;
  mutable std::mutex textMutex_;
  GroupFailure failure_;
  std::function<std::string()> place_;
  std::mutex sendMutex_;
  std::atomic<bool> stop_ = false;
  std::jthread thread_;
};

}  // namespace meshfuse
