// Who is told how long the calls of this thread wait for their peers: a trace; usually nobody.
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

// A wait, from the making of this to its end. For transports: where a rank that need not wait does not come.
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
