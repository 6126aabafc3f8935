#include "multidevice/transport/driven_clock.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "base/error.h"
#include "multidevice/transport/host/waiting_clock.h"

namespace meshfuse {

namespace {

using namespace std::chrono_literals;

constexpr int64_t kMostRanks = 8;
constexpr auto kTick = 200ms;
constexpr std::chrono::nanoseconds kShortestTick =
    60ms;  // of the system's time, by which ranks of a host see how old a heartbeat is
constexpr int64_t kLeft = std::numeric_limits<int64_t>::max();

}  // namespace

// A tick ends when each rank has looked at the clock since it began.
struct SharedTicks {
  int64_t ranks;
  std::atomic<int64_t> tick{1};
  std::atomic<int64_t> began{0};  // by the system's clock, in nanoseconds
  std::atomic<int64_t> looked[kMostRanks] =
      {};  // the last tick at which the thread of a rank that makes the calls has looked
};

namespace {

SharedTicks* ofThisProcess = nullptr;
int64_t rankOfThisProcess = -1;

WaitingClock::duration passed() noexcept {
  thread_local const bool makesCalls = gettid() == getpid();
  SharedTicks& shared = *ofThisProcess;
  std::atomic<int64_t>& looked = shared.looked[rankOfThisProcess];
  const int64_t tick = shared.tick;
  if (int64_t before = looked; makesCalls && before < tick) {
    looked.compare_exchange_strong(before, tick);
  }
  bool isOver = true;
  for (int64_t r = 0; r < shared.ranks; r++) {
    isOver = isOver && shared.looked[r] >= tick;
  }
  const int64_t now = std::chrono::steady_clock::now().time_since_epoch().count();
  int64_t expected = tick;
  if (isOver && now - shared.began >= kShortestTick.count() &&
      shared.tick.compare_exchange_strong(expected, tick + 1)) {
    shared.began = now;
  }
  thread_local int64_t last = tick;
  return (tick - std::exchange(last, tick)) * kTick;
}

}  // namespace

DrivenClock::DrivenClock(int64_t ranks) {
  check(ranks <= kMostRanks, "[test] a clock for {} ranks, expected at most {}", ranks, kMostRanks);
  void* memory = mmap(nullptr, sizeof(SharedTicks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "[test] no memory for a clock");
  shared_ = new (memory) SharedTicks{ranks};
}

DrivenClock::~DrivenClock() { munmap(shared_, sizeof(SharedTicks)); }

void DrivenClock::drive(int64_t rank) const {
  ofThisProcess = shared_;
  rankOfThisProcess = rank;
  WaitingClock::driveBy(passed);
}

void DrivenClock::leave(int64_t rank) const { shared_->looked[rank] = kLeft; }

void DrivenClock::leaveThis() {
  if (ofThisProcess != nullptr) {
    ofThisProcess->looked[rankOfThisProcess] = kLeft;
  }
}

}  // namespace meshfuse
