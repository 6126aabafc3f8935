#include "multidevice/transport/host/waiting_clock.h"

#include <algorithm>

namespace meshfuse {

WaitingClock::time_point WaitingClock::now() noexcept {
  thread_local std::chrono::steady_clock::time_point looked;
  thread_local duration waited{};
  const auto now = std::chrono::steady_clock::now();
  waited += std::min<duration>(now - looked, kLongestLook);
  looked = now;
  return time_point(waited);
}

}  // namespace meshfuse
