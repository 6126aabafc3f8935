// Linked into tests that ThreadSanitizer watches: it shows it the order in which threads let go of an exception.
//
// The holders of an exception are counted by libstdc++, which is not compiled for ThreadSanitizer: it sees that the last holder destroys the
// exception, not that the others let go of it before. The functions here are called in place of the two that count a holder less. Accesses
// of an exception that its holders do not order are still reported.
#include <dlfcn.h>
#include <pthread.h>
#include <sanitizer/tsan_interface.h>

#include <cstdint>
#include <exception>

namespace {

// Not a mutex, which would order more than the holders of one exception.
bool isHeld = false;
thread_local int64_t depth = 0;

__attribute__((no_sanitize("thread"))) void lock() {
  if (depth++ == 0) {
    while (__atomic_test_and_set(&isHeld, __ATOMIC_ACQUIRE)) {
    }
  }
}

__attribute__((no_sanitize("thread"))) void unlock() {
  if (--depth == 0) {
    __atomic_clear(&isHeld, __ATOMIC_RELEASE);
  }
}

// The other threads of a process do not live on in its child.
[[maybe_unused]] const int kOfChild = pthread_atfork(nullptr, nullptr, [] {
  depth = 0;
  __atomic_clear(&isHeld, __ATOMIC_RELEASE);
});

}  // namespace

void std::__exception_ptr::exception_ptr::_M_release() noexcept {
  static auto* const real = reinterpret_cast<void (*)(exception_ptr*)>(
      dlsym(RTLD_NEXT, "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv"));
  lock();
  if (_M_exception_object != nullptr) {
    __tsan_acquire(_M_exception_object);
    __tsan_release(_M_exception_object);
  }
  real(this);
  unlock();
}

extern "C" void __cxa_end_catch() {
  static auto* const real = reinterpret_cast<void (*)()>(dlsym(RTLD_NEXT, "__cxa_end_catch"));
  lock();
  { const std::exception_ptr held = std::current_exception(); }  // whose release stands for the one to come
  real();
  unlock();
}
