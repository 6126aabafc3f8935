// How the steps of a program are issued whose collectives may run beside other steps: on queues of the device, in lanes of the host, or in a
// fiber of the caller's thread.
#include <algorithm>
#include <cstdint>

#include "base/fiber.h"
#include "base/ranges.h"
#include "base/refused_index.h"
#include "device/device_failure.h"
#include "host/arena_registration.h"
#include "host/executor.h"

namespace meshfuse {

namespace {

bool isOfDevice(const Step& step) { return step.order.queue == 0; }

}  // namespace

void Binding::openLanes(Communicator& communicator) {
  const HostProgram& p = *program_;
  if (!isAsynchronous_) {
    for (const Team& team : p.teams) {
      Communicator* const lane = direct_.isOfDevice() ? nullptr : communicator.lane(team);
      if (lane != nullptr) {
        calls_ = &communicator.calls();
      }
      lanes_.emplace_back(lane != nullptr ? *lane : communicator, p, direct_.isOfDevice());
    }
    return;
  }
  if (!p.teams.empty()) {
    lanes_.emplace_back(communicator, p, true);
    meeting_ = p.device->makeEvent();
  }
  events_.resize(p.steps.size());
  for (const Step& s : p.steps) {
    for (const int64_t earlier : s.order.waits) {
      if (isOfDevice(p.steps[earlier]) != isOfDevice(s) && events_[earlier] == nullptr) {
        events_[earlier] = p.device->makeEvent();
      }
    }
  }
}

template <class Work>
void Binding::heed(Work&& work) {
  try {
    work();
  } catch (const RefusedIndexError&) {
    if (!endsTogether_) {
      throw;
    }
    if (refusal_ == nullptr) {
      refusal_ = std::current_exception();
    }
  }
}

void Binding::runSteps(std::span<const Argument> inputs, const ExecuteOptions& options) {
  if (options.profile != nullptr) {
    options.profile->assign(program_->steps.size(), {});
    if (timer_ == nullptr) {
      timer_ = program_->device->makeTimer(2 * std::ssize(program_->steps));
    }
  }
  while (next_ < std::ssize(program_->steps)) {
    if (next_ == options.skipStep) {  // its events are recorded: other queues wait for them
      next_ = isAsynchronous_ ? putInOrder(next_, [this](CommPath&) { return next_ + 1; }) : next_ + 1;
    } else {
      next_ = isAsynchronous_ ? post(next_, inputs, options) : issue(next_);
    }
  }
  endPending(std::ssize(pending_));
  for (const int64_t i : indices(inFlight_)) {
    waitForPosted(i);
  }
  std::ranges::fill(lastPosted_, -1);
  heed([&] { endCall(options); });
  for (const CommPath& lane : lanes_) {
    direct_.takeCounters(lane);
  }
}

int64_t Binding::post(int64_t number, std::span<const Argument> inputs, const ExecuteOptions& options) {
  if (beginsJointPiece(number)) {
    return replayJointly(number);
  }
  const bool watched = options.verify || options.profile != nullptr;
  return putInOrder(number, [&](CommPath& path) {
    int64_t next = number + 1;
    heed([&] {
      if (watched) {
        executeWatched(number, path, inputs, options);
      } else {
        next = put(number, path, inputs);
      }
    });
    return next;
  });
}

template <class Put>
int64_t Binding::putInOrder(int64_t number, const Put& put) {
  const Step& step = program_->steps[number];
  CommPath& path = isOfDevice(step) ? direct_ : carrier();
  for (const int64_t earlier : step.order.waits) {
    if (earlier >= joinedSteps_ && isOfDevice(program_->steps[earlier]) != isOfDevice(step)) {
      path.queue().waitFor(*events_[earlier]);
    }
  }
  const int64_t next = put(path);
  if (events_[next - 1] != nullptr) {
    path.queue().record(*events_[next - 1]);
  }
  return next;
}

void Binding::registerJointly(Communicator& communicator) {
  int64_t isRegistered = registration_->enroll(carrier()) ? 1 : 0;
  meet(communicator, "the registration of memory", {&isRegistered, 1});
  if (isRegistered == 0) {
    registration_->giveUp(carrier());
  }
}

void Binding::recordJointly(Communicator& communicator, std::span<const Argument> inputs) {
  carrier().finishCalls();  // a recording may wait for the device
  int64_t isRecorded = 1;
  for (Replay& piece : joint_.pieces) {
    joinedSteps_ = piece.begin();
    std::unique_ptr<Recording> recording = carrier().capture(queue_, [&] {
      for (int64_t i = piece.begin(); i < piece.end(); i++) {
        next_ = i;
        putInOrder(i, [&](CommPath& path) {
          execute(i, path, inputs);
          return i + 1;
        });
      }
    });
    piece.take(queue_, std::move(recording), [this](int64_t i) { return launchOf(i); });
    isRecorded = piece.isRecorded() ? isRecorded : 0;
  }
  next_ = 0;
  jointNumber_ = carrier().countRecording();
  meet(communicator, "the recording of a program", {&isRecorded, 1});
  replaysJointly_ = isRecorded != 0;
  if (!replaysJointly_) {
    for (Replay& piece : joint_.pieces) {
      piece.giveUp(queue_);
    }
  }
}

bool Binding::pausesCollectives() const {
  const ExecuteOptions& options = *call_.options;
  return calls_ != nullptr && options.collectives == CollectivesRun::InFiber && !options.verify && options.skipStep < 0;
}

int64_t Binding::issue(int64_t number) {
  const Step& step = program_->steps[number];
  const ExecuteOptions& options = *call_.options;
  for (const int64_t earlier : step.order.waits) {
    await(earlier);
  }
  if (number == firstInPlace_ && !pending_.empty() && pending_.front() == kRendezvous) {
    endPending(1);  // a rank that refuses the call or makes another one leaves the arguments as they are
  }
  const bool watched = options.verify || options.profile != nullptr;
  if (step.order.queue == 0) {
    heed([&] {
      watched ? executeWatched(number, direct_, call_.inputs, options) : execute(number, direct_, call_.inputs);
    });
    advancePending();
    return number + 1;
  }
  heed([this] { queue_.wait(); });  // its operand is complete
  const bool beside = step.runsBeside && !options.verify && options.skipStep < 0;
  if (!beside || options.collectives != CollectivesRun::OnThreads || calls_ == nullptr) {
    pending_.push_back(number);
    if (beside && pausesCollectives()) {
      advancePending();
    } else {
      endPending(std::ssize(pending_));
    }
    return number + 1;
  }
  CommPath& lane = lanes_[step.order.queue - 1];
  lastPosted_[step.order.queue - 1] = number;
  inFlight_[number] = calls_->post(
      program_->teams[step.order.queue - 1], [=, this, &lane, &options, inputs = call_.inputs](Communicator&) {
        try {
          watched ? executeWatched(number, lane, inputs, options) : execute(number, lane, inputs);
        } catch (const std::exception& why) {
          direct_.abort(explained(why));  // also after a failure of the device, which the communicator has not seen
          throw;
        }
      });
  return number + 1;
}

void Binding::advancePending() {
  while (!pending_.empty() && goOn([this] { return fiber_->isPaused() ? fiber_->resume() : fiber_->start(); })) {
  }
}

template <class Run>
bool Binding::goOn(const Run& run) {
  runsPending_ = true;
  const bool hasEnded = run();
  runsPending_ = false;
  if (hasEnded) {
    pending_.erase(pending_.begin());
  }
  return hasEnded;
}

void Binding::endPending(int64_t count) {
  for (; count > 0; count--) {
    goOn([this] {
      fiber_->isPaused() ? fiber_->finish() : runPending();
      return true;
    });
  }
}

void Binding::runPending() {
  const int64_t number = pending_.front();
  if (number == kRendezvous) {
    return meet(*call_.communicator, kBegin);
  }
  const int64_t team = program_->steps[number].order.queue - 1;
  if (lastPosted_[team] >= 0) {  // calls of a lane run in order
    waitForPosted(lastPosted_[team]);
  }
  const ExecuteOptions& options = *call_.options;
  const bool watched = options.verify || options.profile != nullptr;
  watched ? executeWatched(number, lanes_[team], call_.inputs, options) : execute(number, lanes_[team], call_.inputs);
}

void Binding::await(int64_t number) {
  if (const auto it = std::ranges::find(pending_, number); it != pending_.end()) {
    return endPending(it - pending_.begin() + 1);
  }
  waitForPosted(number);
}

void Binding::waitForPosted(int64_t number) {
  if (std::optional<CallQueue::Handle>& call = inFlight_[number]; call.has_value()) {
    const CallQueue::Handle handle = *std::exchange(call, std::nullopt);
    handle.wait();
  }
}

}  // namespace meshfuse
