// Runs calls of a communicator asynchronously; many calls may be in flight at once.
//
//   CallQueue queue(comm);
//   CallQueue::Handle sum = queue.post(team, [&](Communicator& c) { c.allReduce(team, x, y, n, DataType::Float, ReduceOp::Sum); });
//   ...                                   // x and y belong to the call until
//   sum.wait();
//
// Each team has a lane: a thread and a communicator of its own (Communicator::lane()), made when its first call is posted. The calls of
// one team run in the order in which they were posted. Calls of different teams do not wait for each other, so ranks cannot deadlock if
// the ranks of each team post its calls in the same order. A posted call matches calls that the other ranks of the team post for the same
// team, with its ranks in the same order; it never matches a call that is made directly. The communicator itself may be called at the same
// time. A failure in one lane is a failure of the group: every call in flight, and every call posted later, ends with the text of the
// failure.
//
// A communicator of a single process, and a lane, have no lanes. Their calls, and calls posted without a team, run on the communicator
// itself in the order in which they were posted; while one of these is in flight, nothing else may call the communicator.
//
// A communicator has one queue at a time. Idle lanes sleep. Within a call, a lane of loopback ranks spins for up to 100 us if every rank has
// a core; other lanes never spin. A lane runs soon after a message wakes it, also while kernels use all cores (base/short_slices.h). On a
// network one lane at a time calls the message library: messages of several lanes are in flight together, but each lane's messages progress
// only in its calls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

class CallQueue {
 public:
  explicit CallQueue(Communicator& comm);
  // Waits until every posted call has ended, with or without an error. If an exception destroys the queue while calls are in flight, they
  // may wait for calls that this rank will never make: the communicator is aborted, so that they end at once.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  class Handle {
   public:
    // True if the call has ended, with or without an error.
    bool hasEnded() const;
    // Returns when the call has ended; throws the error of the call. May be called more than once, and may outlive the queue.
    void wait() const { ended_.get(); }

   private:
    friend class CallQueue;
    explicit Handle(std::shared_future<void> ended) : ended_(std::move(ended)) {}
    std::shared_future<void> ended_;
  };

  // `call` gets the communicator of the team's lane, for calls of the team or of a part of it. UserError if this rank is not in the
  // team.
  Handle post(const Team& team, std::function<void(Communicator&)> call);
  Handle post(std::function<void(Communicator&)> call);
  // Returns when every call posted so far has ended; throws the first error since the last waitAll().
  void waitAll();

 private:
  struct Call {
    std::function<void(Communicator&)> make;
    std::promise<void> ended;
  };
  struct Lane {
    explicit Lane(Communicator& c) : comm(c) {}
    Communicator& comm;
    std::deque<Call> calls;  // posted and not ended; the first one is running
    std::condition_variable changed;
    std::jthread thread;
  };
  // `comm`: of the lane of these ranks, which begins with its first call.
  Handle postTo(const std::vector<int64_t>& ranks, Communicator& comm, std::function<void(Communicator&)> call);
  bool isEmpty() const;
  void run(Lane& lane);

  Communicator& comm_;
  std::mutex mutex_;
  std::condition_variable ended_;               // signals that a call has ended
  std::map<std::vector<int64_t>, Lane> lanes_;  // by team; of the communicator itself: no ranks
  bool closing_ = false;
  int64_t uncaught_ = std::uncaught_exceptions();
  std::exception_ptr firstFailure_;  // since the last waitAll()
};

}  // namespace meshfuse
