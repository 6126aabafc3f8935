// Threads that run the parts of a kernel.
//
//   ThreadPool pool({.threads = 4});
//   pool.run(parts, [&](int64_t begin, int64_t end, int worker) { ... });
//
// The caller takes part, as worker 0. Idle workers claim chunks of consecutive parts, so the worker of a part differs from run to
// run: results must not depend on it. Helper threads spin for the next run for a short time, then sleep: an idle pool takes no processor
// time, so each of several ranks that are threads may have a pool.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace meshfuse {

struct ThreadPoolOptions {
  int64_t threads = 0;  // caller included; 0: one for every core this process may run on
  bool spin = true;     // false: helpers sleep at once; for more threads than cores
};

class ThreadPool {
 public:
  explicit ThreadPool(ThreadPoolOptions options = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int64_t threads() const;

  // Calls fn(begin, end, worker) so that the ranges cover 0..parts-1, each part once; returns when all have returned. A range
  // holds `grain` parts, the last one maybe fewer; 0 chooses a few ranges for each thread. A pool of one thread calls fn once, for all parts.
  // 0 <= worker < threads(); a worker runs one range at a time. The first exception of any range is thrown here once all others have ended.
  // One run at a time: a second thread that calls run waits; if a range calls run, its own worker runs all parts.
  template <class Fn>
  void run(int64_t parts, Fn&& fn, int64_t grain = 0) {
    using Callable = std::remove_reference_t<Fn>;
    runRanges(parts, grain, const_cast<void*>(static_cast<const void*>(&fn)),
              [](void* context, int64_t begin, int64_t end, int64_t worker) {
                (*static_cast<Callable*>(context))(begin, end, worker);
              });
  }

 private:
  using RangeFn = void (*)(void* context, int64_t begin, int64_t end, int64_t worker);
  void runRanges(int64_t parts, int64_t grain, void* context, RangeFn fn);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace meshfuse
