// A bootstrap between threads of this process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "multidevice/transport/host/bootstrap.h"

namespace meshfuse {

// Gatherings of as many threads, one after the other.
class Gathering {
 public:
  explicit Gathering(int64_t ranks) : coming_(ranks), missing_(ranks) {}

  std::vector<std::string> gather(int64_t rank, std::string_view mine) {
    std::unique_lock lock(mutex_);
    coming_[rank] = mine;
    const int64_t round = round_;
    if (--missing_ == 0) {
      gathered_ = coming_;
      missing_ = ranks();
      ++round_;
      complete_.notify_all();
    }
    complete_.wait(lock, [&] { return round_ != round; });
    return gathered_;  // the next round ends when this rank has come to it
  }
  int64_t ranks() const { return std::ssize(coming_); }

 private:
  std::mutex mutex_;
  std::condition_variable complete_;
  std::vector<std::string> coming_;
  std::vector<std::string> gathered_;
  int64_t missing_;
  int64_t round_ = 0;
};

class GatheringOfThreads final : public Bootstrap {
 public:
  GatheringOfThreads(Gathering& gathering, int64_t rank) : gathering_(gathering), rank_(rank) {}
  int64_t rank() const override { return rank_; }
  int64_t size() const override { return gathering_.ranks(); }
  std::vector<std::string> allGather(std::string_view mine) override { return gathering_.gather(rank_, mine); }

 private:
  Gathering& gathering_;
  int64_t rank_;
};

// Runs `body` with the bootstrap of each rank, and returns when all have.
template <class Body>
void gatherThreads(int64_t ranks, const Body& body) {
  Gathering gathering(ranks);
  std::vector<std::jthread> threads;
  for (int64_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      GatheringOfThreads bootstrap(gathering, r);
      body(bootstrap);
    });
  }
}

}  // namespace meshfuse
