#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/cores.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/rounding.h"

namespace meshfuse {

namespace {

// About 20 us: longer than the gap between the kernels of one program, shorter than a time slice.
constexpr int64_t kSpins = 600;
constexpr int64_t kRangesPerThread = 4;

void futexWait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

// A run has a number, its epoch. `cursor` holds the low half of the epoch above the next unclaimed range, so that a helper
// that slept through a run cannot claim a range of the next one with the arguments of the last: it may read a mix of both
// jobs, but then its claim fails.
struct ThreadPool::State {
  struct Job {
    std::atomic<void*> context = nullptr;
    std::atomic<RangeFn> fn = nullptr;
    std::atomic<int64_t> parts = 0;
    std::atomic<int64_t> grain = 1;
    std::atomic<uint32_t> ranges = 0;
  };

  int64_t threads = 1;
  bool spin = true;
  std::mutex callers;  // one run at a time
  Job job;
  alignas(64) std::atomic<uint32_t> epoch{0};
  alignas(64) std::atomic<uint64_t> cursor{0};
  alignas(64) std::atomic<uint32_t> unfinished{0};  // ranges of this run that have not returned
  alignas(64) std::atomic<uint32_t> sleepers{0};
  std::atomic<uint32_t> callerSleeps{0};
  std::atomic<bool> stop{false};
  std::atomic_flag failed;
  std::exception_ptr failure;
  std::vector<std::thread> helpers;

  ~State();  // ends the helpers
  void work(uint32_t run, int64_t worker);
  void finish();
  void helper(int64_t worker);
};

namespace {

// The pool and worker this thread runs a range for, for nested runs.
struct Inside {
  const void* pool = nullptr;
  int64_t worker = 0;
};
thread_local Inside inside;

struct InsideScope {
  explicit InsideScope(Inside now) : before(std::exchange(inside, now)) {}
  ~InsideScope() { inside = before; }
  const Inside before;
};

}  // namespace

void ThreadPool::State::work(uint32_t run, int64_t worker) {
  uint64_t c = cursor.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(c >> 32) == run) {
    auto acquire = std::memory_order_acquire;
    void* context = job.context.load(acquire);
    RangeFn fn = job.fn.load(acquire);
    int64_t parts = job.parts.load(acquire);
    int64_t grain = job.grain.load(acquire);
    auto range = static_cast<uint32_t>(c);
    if (range >= job.ranges.load(acquire)) {
      return;
    }
    if (!cursor.compare_exchange_weak(c, c + 1, std::memory_order_acq_rel)) {
      continue;
    }
    int64_t begin = static_cast<int64_t>(range) * grain;
    try {
      const InsideScope scope({this, worker});
      fn(context, begin, std::min(begin + grain, parts), worker);
    } catch (...) {
      if (!failed.test_and_set()) {
        failure = std::current_exception();
      }
    }
    if (unfinished.fetch_sub(1, std::memory_order_seq_cst) == 1 && worker != 0 &&
        callerSleeps.load(std::memory_order_seq_cst) != 0) {
      futexWakeAll(unfinished);
    }
    c = cursor.load(std::memory_order_acquire);
  }
}

void ThreadPool::State::helper(int64_t worker) {
  uint32_t seen = 0;
  while (true) {
    for (int64_t k = 0; spin && k < kSpins && epoch.load(std::memory_order_acquire) == seen; k++) {
      pause();
    }
    if (epoch.load(std::memory_order_acquire) == seen) {
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      while (epoch.load(std::memory_order_seq_cst) == seen) {
        futexWait(epoch, seen);
      }
      sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
    seen = epoch.load(std::memory_order_acquire);
    if (stop.load(std::memory_order_acquire)) {
      return;
    }
    work(seen, worker);
  }
}

void ThreadPool::State::finish() {
  for (int64_t k = 0; k < (spin ? kSpins * 4 : 1); k++) {
    if (unfinished.load(std::memory_order_acquire) == 0) {
      return;
    }
    pause();
  }
  callerSleeps.store(1, std::memory_order_seq_cst);
  uint32_t left;
  while ((left = unfinished.load(std::memory_order_seq_cst)) != 0) {
    futexWait(unfinished, left);
  }
  callerSleeps.store(0, std::memory_order_relaxed);
}

// Also where the system gave the constructor of the pool fewer threads than it asked for.
ThreadPool::State::~State() {
  stop.store(true, std::memory_order_release);
  epoch.fetch_add(1, std::memory_order_seq_cst);
  futexWakeAll(epoch);
  for (std::thread& t : helpers) {
    t.join();
  }
}

ThreadPool::ThreadPool(ThreadPoolOptions options) : state_(std::make_unique<State>()) {
  check(options.threads >= 0 && options.threads <= kMostThreads,
        "[thread pool] got {} threads, expected 0 to {}; give 0 for one thread for each core", options.threads,
        kMostThreads);
  int64_t cores = availableCores();
  state_->threads = options.threads == 0 ? cores : options.threads;
  state_->spin = options.spin && state_->threads <= cores;  // spinning would take the core from the thread waited for
  for (int64_t worker = 1; worker < state_->threads; worker++) {
    state_->helpers.emplace_back([s = state_.get(), worker] { s->helper(worker); });
  }
}

ThreadPool::~ThreadPool() = default;

int64_t ThreadPool::threads() const { return state_->threads; }

void ThreadPool::runRanges(int64_t parts, int64_t grain, void* context, RangeFn fn) {
  if (parts <= 0) {
    return;
  }
  State& s = *state_;
  if (inside.pool == &s) {
    fn(context, 0, parts, inside.worker);
    return;
  }
  if (grain <= 0) {
    int64_t ranges = static_cast<int64_t>(s.threads) * kRangesPerThread;
    grain = divideUp(parts, ranges);
  }
  grain = std::max(grain, parts / (int64_t{1} << 30) + 1);  // ranges are counted in 32 bits
  int64_t ranges = divideUp(parts, grain);
  std::lock_guard lock(s.callers);
  if (s.threads == 1 || ranges == 1) {
    const InsideScope scope({&s, 0});
    fn(context, 0, parts, 0);
    return;
  }
  // The cursor leaves the last run before the job changes: a helper that still compares the cursor of the last run with the number of
  // ranges of this one would else claim a range, which would then run twice.
  auto release = std::memory_order_release;
  uint32_t run = s.epoch.load(std::memory_order_relaxed) + 1;
  s.cursor.store(static_cast<uint64_t>(run) << 32, release);
  s.job.context.store(context, release);
  s.job.fn.store(fn, release);
  s.job.parts.store(parts, release);
  s.job.grain.store(grain, release);
  s.job.ranges.store(static_cast<uint32_t>(ranges), release);
  s.failed.clear();
  s.failure = nullptr;
  s.unfinished.store(static_cast<uint32_t>(ranges), release);
  s.epoch.store(run, std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) {
    futexWakeAll(s.epoch);
  }
  s.work(run, 0);
  s.finish();
  if (s.failure) {
    std::rethrow_exception(s.failure);
  }
}

}  // namespace meshfuse
