#include "multidevice/transport/host/waiting_clock.h"

#include <algorithm>
#include <atomic>

namespace meshfuse {

namespace {

std::atomic<WaitingClock::Passed> driver{nullptr};

}  // namespace

void WaitingClock::driveBy(Passed passed) noexcept { driver = passed; }

WaitingClock::time_point WaitingClock::now() noexcept {
  thread_local std::chrono::steady_clock::time_point looked;
  thread_local duration waited{};
  if (const Passed passed = driver.load(std::memory_order_relaxed); passed != nullptr) [[unlikely]] {
    waited += passed();
    return time_point(waited);
  }
  const auto now = std::chrono::steady_clock::now();
  waited += std::min<duration>(now - looked, kLongestLook);
  looked = now;
  return time_point(waited);
}

}  // namespace meshfuse
