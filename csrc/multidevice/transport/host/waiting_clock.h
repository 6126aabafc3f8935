// The clock of the waits in this folder. Between two calls of now() by one thread, this clock advances by at most kLongestLook, however
// much real time has passed: a machine that stands still for seconds, or gives the processor to other programs, does not end a wait. A wait
// calls now() more often than that.
#pragma once

#include <algorithm>
#include <chrono>

namespace meshfuse {

class WaitingClock {
 public:
  using duration = std::chrono::steady_clock::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<WaitingClock>;
  static constexpr bool is_steady = true;
  static constexpr std::chrono::milliseconds kLongestLook{100};

  // Only times of one thread can be compared.
  static time_point now() noexcept;

  // In place of the system's time: how much has passed since the last look of the calling thread. For tests, before the first look.
  using Passed = duration (*)() noexcept;
  static void driveBy(Passed passed) noexcept;
};

// How long a rank waits for a connection, or for a message that a running peer sends at once.
constexpr std::chrono::milliseconds promptLimit(std::chrono::milliseconds deadline) {
  return std::clamp(deadline / 4, std::chrono::milliseconds{2'000}, std::chrono::milliseconds{15'000});
}

}  // namespace meshfuse
