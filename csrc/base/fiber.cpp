#include "base/fiber.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cfenv>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/error.h"

// Of AddressSanitizer and ThreadSanitizer, which must know of each switch; null in other builds.
// NOLINTBEGIN(bugprone-reserved-identifier): their names
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** kept, const void* bottom, size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* kept, const void** bottom, size_t* bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* at, size_t bytes);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace meshfuse {

namespace {

thread_local Fiber* fiberOfThread = nullptr;

}  // namespace

struct Fiber::Stack {
  // One side of a switch.
  struct Side {
    ucontext_t registers{};
    void* kept = nullptr;  // of AddressSanitizer
    const void* bottom = nullptr;
    size_t bytes = 0;
    void* threadSanitizer = nullptr;
  };

  Stack() : guard(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    memory = mmap(nullptr, guard + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    deviceCheck(memory != MAP_FAILED, "[fiber] mmap of a stack of 1 MiB failed: {}", std::strerror(errno));
    if (mprotect(memory, guard, PROT_NONE) != 0) {  // an overflow ends the process
      const int why = errno;
      munmap(memory, guard + kStackBytes);
      throwDeviceError(fmt::format("[fiber] mprotect below a stack failed: {}", std::strerror(why)));
    }
    work.bottom = static_cast<char*>(memory) + guard;
    work.bytes = kStackBytes;
    work.threadSanitizer = __tsan_create_fiber != nullptr ? __tsan_create_fiber(0) : nullptr;
    getcontext(&work.registers);
    work.registers.uc_stack = {.ss_sp = static_cast<char*>(memory) + guard, .ss_flags = 0, .ss_size = kStackBytes};
    makecontext(&work.registers, Fiber::run, 0);
  }
  ~Stack() {
    if (__tsan_destroy_fiber != nullptr) {
      __tsan_destroy_fiber(work.threadSanitizer);
    }
    if (__asan_unpoison_memory_region != nullptr) {
      __asan_unpoison_memory_region(work.bottom, work.bytes);
    }
    munmap(memory, guard + kStackBytes);
  }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  static void change(Side& from, Side& to) {
    if (__tsan_switch_to_fiber != nullptr) {
      __tsan_switch_to_fiber(to.threadSanitizer, 0);
    }
    if (__sanitizer_start_switch_fiber != nullptr) {
      __sanitizer_start_switch_fiber(&from.kept, to.bottom, to.bytes);
    }
    swapcontext(&from.registers, &to.registers);
    if (__sanitizer_finish_switch_fiber != nullptr) {  // back on the side of `from`
      __sanitizer_finish_switch_fiber(from.kept, &to.bottom, &to.bytes);
    }
  }

  size_t guard;
  void* memory = nullptr;
  Side caller;
  Side work;
  std::fenv_t modes{};  // of the caller, for the work
};

Fiber::Fiber(std::function<void()> work) : work_(std::move(work)) {}

Fiber::~Fiber() = default;

bool Fiber::start() {
  invariant(!isPaused(), "[fiber] started while it is paused");
  if (stack_ == nullptr) {
    stack_ = std::make_unique<Stack>();
  }
  switchToWork();
  return !isPaused();
}

bool Fiber::resume() {
  invariant(isPaused(), "[fiber] resumed while it is not paused");
  if ((*waitsFor_)()) {
    switchToWork();
  }
  return !isPaused();
}

void Fiber::finish() {
  invariant(isPaused(), "[fiber] finished while it is not paused");
  mustEnd_ = true;
  switchToWork();
}

bool Fiber::pauses() { return fiberOfThread != nullptr && !fiberOfThread->mustEnd_; }

void Fiber::pauseUntil(const std::function<bool()>& ready) {
  if (pauses() && !ready()) {
    Fiber& own = *fiberOfThread;
    own.waitsFor_ = &ready;
    own.switchToCaller();
  }
}

void Fiber::switchToWork() {
  waitsFor_ = nullptr;
  Fiber* const outer = std::exchange(fiberOfThread, this);
  pthread_sigmask(SIG_SETMASK, nullptr, &stack_->work.registers.uc_sigmask);
  std::fegetenv(&stack_->modes);
  stack_->caller.threadSanitizer = __tsan_get_current_fiber != nullptr ? __tsan_get_current_fiber() : nullptr;
  Stack::change(stack_->caller, stack_->work);
  fiberOfThread = outer;
  if (failure_ != nullptr) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

void Fiber::switchToCaller() {
  Stack::change(stack_->work, stack_->caller);
  std::fesetenv(&stack_->modes);  // the switch restores those of the work's last run
}

void Fiber::run() {
  Fiber& own = *fiberOfThread;
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &own.stack_->caller.bottom, &own.stack_->caller.bytes);
  }
  std::fesetenv(&own.stack_->modes);
  for (;;) {  // never returns: the next start() goes on here
    own.enter();
    own.switchToCaller();
  }
}

void Fiber::enter() {
  try {
    work_();
  } catch (...) {
    failure_ = std::current_exception();
  }
  mustEnd_ = false;
}

}  // namespace meshfuse
