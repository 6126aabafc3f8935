#include "multidevice/transport/wait_observer.h"

namespace meshfuse {

namespace {

thread_local WaitObserver* observerOfThread = nullptr;

}  // namespace

ObserveWaits::ObserveWaits(WaitObserver& observer) : before_(observerOfThread) { observerOfThread = &observer; }

ObserveWaits::~ObserveWaits() { observerOfThread = before_; }

ObservedWait::ObservedWait() : observer_(observerOfThread) {
  if (observer_ != nullptr) {
    begin_ = WaitObserver::Clock::now();
  }
}

ObservedWait::~ObservedWait() {
  if (observer_ != nullptr) {
    observer_->waited(begin_, WaitObserver::Clock::now());
  }
}

}  // namespace meshfuse
