// Calls of a communicator that run while the program goes on, many in flight at once.
//
//   CallQueue queue(comm);
//   CallQueue::Handle sum = queue.post(team, [&](Communicator& c) { c.allReduce(team, x, y, n, DataType::Float, ReduceOp::Sum); });
//   ...                                   // x and y belong to the call until
//   sum.wait();
//
// Each team has a lane: a thread and a communicator of its own (Communicator::lane()), made when its first call is posted. The calls of
// one team run in the order in which they were posted; those of different teams wait for nothing of each other, not even for their order:
// so ranks whose orders agree team by team cannot deadlock. A posted call meets calls that the other ranks of the team post for the same
// team, its ranks in the same order; never one that is made directly. The communicator itself may be called meanwhile. What fails in one
// lane is the failure of the group: every call in flight ends with its text, and so do those posted later.
//
// Of a communicator without lanes, such as that of a single process or a lane itself, and of calls posted without a team, all run in the
// order in which they were posted, on the communicator itself: while any of these is in flight, nothing else may call it.
//
// One queue at a time for a communicator. Lanes that have nothing to do sleep, and none spins, whatever the number of cores. On a network
// lanes take turns at the message library: their messages are under way together, but move when it is their thread's turn.
#pragma once

#include <condition_variable>
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

  // The call is given the communicator of the team's lane, for calls of the team or of a part of it. UserError if this rank is not in
  // the team.
  Handle post(const Team& team, std::function<void(Communicator&)> call);
  Handle post(std::function<void(Communicator&)> call);
  // Returns when every call posted so far has ended; throws what the first of them to fail threw, if one did since the last time.
  void waitAll();

 private:
  struct Call {
    std::function<void(Communicator&)> make;
    std::promise<void> ended;
  };
  struct Lane {
    explicit Lane(Communicator& c) : comm(c) {}
    Communicator& comm;
    std::deque<Call> calls;  // posted and not ended; the first is under way
    std::condition_variable changed;
    std::jthread thread;
  };
  Handle postTo(Lane& lane, std::function<void(Communicator&)> call);
  Lane& laneOf(const std::vector<int>& ranks, Communicator& comm);
  void run(Lane& lane);

  Communicator& comm_;
  std::mutex mutex_;
  std::condition_variable ended_;           // a call has
  std::map<std::vector<int>, Lane> lanes_;  // by team; of the communicator itself: no ranks
  bool closing_ = false;
  std::exception_ptr firstFailure_;  // since the last waitAll()
};

}  // namespace meshfuse
