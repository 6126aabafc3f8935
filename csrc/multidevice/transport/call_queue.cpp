#include "multidevice/transport/call_queue.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

#include "base/short_slices.h"

namespace meshfuse {

CallQueue::CallQueue(Communicator& comm) : comm_(comm) {}

CallQueue::~CallQueue() {
  {
    std::unique_lock lock(mutex_);
    // an empty queue may outlive the part of the communicator that makes calls
    if (!isEmpty() && comm_.size() > 1 && std::uncaught_exceptions() > uncaught_) {
      lock.unlock();
      comm_.abort("an exception has destroyed the queue of calls in flight");
      lock.lock();
    }
    // a call that runs may post another one, also to a lane that has no calls
    ended_.wait(lock, [&] { return isEmpty(); });
    closing_ = true;
    for (auto& [team, lane] : lanes_) {
      lane.changed.notify_one();
    }
  }
  for (auto& [team, lane] : lanes_) {
    lane.thread.join();
  }
}

bool CallQueue::Handle::hasEnded() const {
  return ended_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

CallQueue::Handle CallQueue::post(const Team& team, std::function<void(Communicator&)> call) {
  Communicator* const lane = comm_.lane(team);
  return lane == nullptr ? post(std::move(call)) : postTo(team.ranks, *lane, std::move(call));
}

CallQueue::Handle CallQueue::post(std::function<void(Communicator&)> call) {
  return postTo({}, comm_, std::move(call));
}

CallQueue::Handle CallQueue::postTo(const std::vector<int64_t>& ranks, Communicator& comm,
                                    std::function<void(Communicator&)> call) {
  Call posted{std::move(call), {}};
  Handle handle(posted.ended.get_future().share());
  std::unique_lock lock(mutex_);
  const auto [it, isNew] = lanes_.try_emplace(ranks, comm);
  Lane& lane = it->second;
  if (isNew) {
    try {
      lane.thread = std::jthread([this, &lane] { run(lane); });
    } catch (...) {  // the system gives no more threads
      lanes_.erase(it);
      throw;
    }
  }
  lane.calls.push_back(std::move(posted));
  lock.unlock();
  lane.changed.notify_one();
  return handle;
}

bool CallQueue::isEmpty() const {
  return std::ranges::all_of(lanes_, [](const auto& lane) { return lane.second.calls.empty(); });
}

void CallQueue::waitAll() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return isEmpty(); });
  if (const std::exception_ptr failure = std::exchange(firstFailure_, nullptr); failure != nullptr) {
    std::rethrow_exception(failure);
  }
}

void CallQueue::run(Lane& lane) {
  takeShortSlices();
  std::unique_lock lock(mutex_);
  for (;;) {
    lane.changed.wait(lock, [&] { return closing_ || !lane.calls.empty(); });
    if (lane.calls.empty()) {
      return;
    }
    Call& call = lane.calls.front();  // its address stays valid when later calls are posted
    lock.unlock();
    std::exception_ptr failure;
    try {
      call.make(lane.comm);
    } catch (...) {
      failure = std::current_exception();
    }
    call.make = nullptr;  // before the lock: destructors of the user's captures may post
    lock.lock();
    firstFailure_ = firstFailure_ == nullptr ? failure : firstFailure_;
    std::promise<void> ended = std::move(call.ended);
    lane.calls.pop_front();
    failure == nullptr ? ended.set_value() : ended.set_exception(failure);
    ended_.notify_all();
  }
}

}  // namespace meshfuse
