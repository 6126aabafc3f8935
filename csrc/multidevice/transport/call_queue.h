// Calls of a communicator that run while the program goes on, many in flight at once.
//
//   CallQueue queue(comm);
//   CallQueue::Handle sum = queue.post([&](Communicator& c) { c.allReduce(team, x, y, n, DataType::Float, ReduceOp::Sum); });
//   ...                                   // x and y belong to the call until
//   sum.wait();
//
// Calls run in the order in which they were posted, on a thread of the queue's own; so ranks that post in the same order agree.
// While any is in flight, nothing else may call the communicator.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

class CallQueue {
 public:
  explicit CallQueue(Communicator& comm);
  // Waits until every call posted has ended, well or not.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  class Handle {
   public:
    // Whether the call has ended, well or not.
    bool hasEnded() const;
    // Returns when the call has ended; throws what it threw. May be called more than once, and outlive the queue.
    void wait() const { ended_.get(); }

   private:
    friend class CallQueue;
    explicit Handle(std::shared_future<void> ended) : ended_(std::move(ended)) {}
    std::shared_future<void> ended_;
  };

  Handle post(std::function<void(Communicator&)> call);
  // Returns when every call posted so far has ended; throws what the first of them to fail threw, if one did since the last time.
  void waitAll();

 private:
  struct Call {
    std::function<void(Communicator&)> make;
    std::promise<void> ended;
  };
  void run();

  Communicator& comm_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_;  // posted and not ended; the first is under way
  bool closing_ = false;
  std::exception_ptr firstFailure_;  // since the last waitAll()
  std::jthread thread_;
};

}  // namespace meshfuse
