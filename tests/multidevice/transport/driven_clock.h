// The time of a world of processes in a test: it passes while all ranks that are to survive get the processor, and stands still while one of
// them does not. So a starved rank never looks like a stopped one. It passes about three times as fast as the system's time.
#pragma once

#include <cstdint>

namespace meshfuse {

struct SharedTicks;

class DrivenClock {
 public:
  // A clock for the processes that are forked after this. They share it.
  explicit DrivenClock(int64_t ranks);
  ~DrivenClock();
  DrivenClock(const DrivenClock&) = delete;
  DrivenClock& operator=(const DrivenClock&) = delete;

  // In the process of a rank: the waits of this process go by this clock.
  void drive(int64_t rank) const;
  // Time passes without this rank from now on: it fails, or has ended.
  void leave(int64_t rank) const;
  // The same of the rank of this process, if its waits go by such a clock.
  static void leaveThis();

 private:
  SharedTicks* shared_;
};

}  // namespace meshfuse
