#include "multidevice/transport/call_queue.h"

#include <chrono>
#include <exception>
#include <utility>

namespace meshfuse {

CallQueue::CallQueue(Communicator& comm) : comm_(comm), thread_([this] { run(); }) {}

CallQueue::~CallQueue() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool CallQueue::Handle::hasEnded() const {
  return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CallQueue::Handle CallQueue::post(std::function<void(Communicator&)> call) {
  Call posted{std::move(call), {}};
  Handle handle(posted.ended.get_future().share());
  {
    std::lock_guard lock(mutex_);
    calls_.push_back(std::move(posted));
  }
  changed_.notify_all();
  return handle;
}

void CallQueue::waitAll() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return calls_.empty(); });
  if (const std::exception_ptr failure = std::exchange(firstFailure_, nullptr); failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

void CallQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !calls_.empty(); });
    if (calls_.empty()) {
      return;
    }
    Call& call = calls_.front();  // stays where it is while others are posted behind it
    lock.unlock();
    std::exception_ptr failure;
    try {
      call.make(comm_);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    firstFailure_ = firstFailure_ == nullptr ? failure : firstFailure_;
    std::promise<void> ended = std::move(call.ended);
    calls_.pop_front();
    failure == nullptr ? ended.set_value() : ended.set_exception(failure);
    changed_.notify_all();
  }
}

}  // namespace meshfuse
