// An observer of the waits of this thread's calls for their peers, such as a trace. By default there is none.
#pragma once

#include <chrono>

namespace meshfuse {

class WaitObserver {
 public:
  using Clock = std::chrono::steady_clock;
  virtual void waited(Clock::time_point begin, Clock::time_point end) = 0;

 protected:
  ~WaitObserver() = default;
};

// Lets an observer see the waits of this thread, for as long as this lives.
class ObserveWaits {
 public:
  explicit ObserveWaits(WaitObserver& observer);
  ~ObserveWaits();
  ObserveWaits(const ObserveWaits&) = delete;
  ObserveWaits& operator=(const ObserveWaits&) = delete;

 private:
  WaitObserver* before_;
};

// Records a wait from construction to destruction. Transports create one only if a rank has to wait.
class ObservedWait {
 public:
  ObservedWait();
  ~ObservedWait();
  ObservedWait(const ObservedWait&) = delete;
  ObservedWait& operator=(const ObservedWait&) = delete;

 private:
  WaitObserver* observer_;
  WaitObserver::Clock::time_point begin_;
};

}  // namespace meshfuse
