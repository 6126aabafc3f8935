// A GPU that counts what its queues are asked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "device/cuda/forwarding_queue.h"

namespace meshfuse {

struct QueueCalls {
  int64_t single = 0;  // launches and calls of routines, also those that are captured
  int64_t captures = 0;
  int64_t replays = 0;
  int64_t waits = 0;
  int64_t leftOut = 0;            // the number of a replay that the queue does not make, from 1
  std::function<void()> inPlace;  // what it does then
};

class CountingQueue final : public ForwardingQueue {
 public:
  CountingQueue(std::unique_ptr<Queue> to, QueueCalls& calls) : ForwardingQueue(std::move(to)), calls_(calls) {}
  void launch(const Launch& launch) override {
    calls_.single++;
    to_->launch(launch);
  }
  void call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) override {
    calls_.single++;
    to_->call(routine, operands, out, workspace);
  }
  std::unique_ptr<Recording> capture(const std::function<void()>& work, Queue* beside) override {
    calls_.captures++;
    return ForwardingQueue::capture(work, beside);
  }
  void wait() override {
    calls_.waits++;
    to_->wait();
  }
  void replay(Recording& recording) override {
    if (++calls_.replays != calls_.leftOut) {
      to_->replay(recording);
    } else if (calls_.inPlace) {
      calls_.inPlace();
    }
  }

 private:
  QueueCalls& calls_;
};

inline std::shared_ptr<Device> countingDevice(std::shared_ptr<Device> to, QueueCalls& calls) {
  return std::make_shared<QueueWrappingDevice>(std::move(to), [&calls](std::unique_ptr<Queue> queue) {
    return std::make_unique<CountingQueue>(std::move(queue), calls);
  });
}

}  // namespace meshfuse
