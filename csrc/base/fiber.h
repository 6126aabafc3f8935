// Fiber: work that pauses where it would wait, so that its thread does other work meanwhile.
//
//   Fiber sum([&] { communicator.allReduce(...); });
//   bool ended = sum.start();          // to its first wait, or to its end
//   ...                                // other work of this thread
//   ended = ended || sum.resume();     // goes on if what it waits for has come
//   ...
//   if (!ended) sum.finish();          // to its end; its waits block, as they do outside a fiber
//
// The work runs on a stack of its own, on the thread that called start(), resume() or finish(). All calls for one run of the work come from one
// thread. The code that waits takes part: it calls pauseUntil() before it blocks, with no lock held and no exception being handled. Code
// that blocks without calling pauseUntil() blocks the thread. At each switch to the work it takes over the floating-point modes and the
// signal mask of its caller, and the caller keeps its own. The thread must not be cancelled (pthread_cancel) while it runs the work.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

namespace meshfuse {

class Fiber {
 public:
  // A run of `work` takes at most kStackBytes of stack.
  explicit Fiber(std::function<void()> work);
  // Must not be called while the work is paused.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  static constexpr size_t kStackBytes = size_t{1} << 20;

  // Each runs the work until it pauses or ends, and throws what it throws. True if it has ended; then it can be started again. The first start
  // allocates the stack; DeviceError if there is none. InternalError if start() is called while it is paused, or the others while it is not.
  bool start();
  bool resume();
  // Runs the paused work to its end.
  void finish();
  bool isPaused() const { return waitsFor_ != nullptr; }

  // Whether the caller runs in a fiber whose waits may pause it: not outside of fibers, and not while finish() runs the work to its end.
  static bool pauses();
  // In such a fiber: pauses; returns when ready(), or when the fiber must end. Elsewhere returns at once. `ready` is called by the thread outside
  // the fiber.
  static void pauseUntil(const std::function<bool()>& ready);

 private:
  struct Stack;  // and the registers of both sides

  void enter();
  void switchToWork();
  void switchToCaller();
  static void run();

  const std::function<void()> work_;
  std::unique_ptr<Stack> stack_;
  const std::function<bool()>* waitsFor_ = nullptr;
  bool mustEnd_ = false;
  std::exception_ptr failure_;
};

}  // namespace meshfuse
