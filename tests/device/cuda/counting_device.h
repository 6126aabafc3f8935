// A GPU that counts what its queues are asked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "device/cuda/driver/stream_queue.h"
#include "device/forwarding_device.h"
#include "multidevice/transport/device_communicator.h"

namespace meshfuse {

struct QueueCalls {
  int64_t single = 0;  // launches and calls of routines, also those that are captured
  int64_t captures = 0;
  int64_t replays = 0;
  int64_t leftOut = 0;            // the number of a replay that the queue does not make, from 1
  std::function<void()> inPlace;  // what it does then
};

class CountingQueue final : public StreamQueue {
 public:
  CountingQueue(std::unique_ptr<Queue> to, QueueCalls& calls) : to_(std::move(to)), calls_(calls) {}
  void launch(const Launch& launch) override {
    calls_.single++;
    to_->launch(launch);
  }
  void call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) override {
    calls_.single++;
    to_->call(routine, operands, out, workspace);
  }
  void clear(void* memory, int64_t bytes) override { to_->clear(memory, bytes); }
  void copy(void* to, const void* from, std::span<const BytePiece> pieces) override { to_->copy(to, from, pieces); }
  void copyElements(const StridedElements& to, const StridedElements& from) override { to_->copyElements(to, from); }
  void record(Event& event) override { to_->record(event); }
  void waitFor(const Event& event) override { to_->waitFor(event); }
  bool canCapture() const override { return to_->canCapture(); }
  std::unique_ptr<Recording> capture(const std::function<void()>& work, Queue* beside) override {
    calls_.captures++;
    return to_->capture(work, beside != nullptr ? static_cast<CountingQueue*>(beside)->to_.get() : nullptr);
  }
  void replay(Recording& recording) override {
    if (++calls_.replays != calls_.leftOut) {
      to_->replay(recording);
    } else if (calls_.inPlace) {
      calls_.inPlace();
    }
  }
  void retire(std::unique_ptr<Recording> recording) override { to_->retire(std::move(recording)); }
  void orderBefore(GpuStream stream) override { to_->orderBefore(stream); }
  void orderAfter(GpuStream stream) override { to_->orderAfter(stream); }
  void wait() override { to_->wait(); }
  void poll() override { to_->poll(); }
  cuda::Stream stream() const override { return static_cast<StreamQueue&>(*to_).stream(); }

 private:
  const std::unique_ptr<Queue> to_;
  QueueCalls& calls_;
};

class CountingDevice final : public ForwardingDevice {
 public:
  CountingDevice(std::shared_ptr<Device> to, QueueCalls& calls) : ForwardingDevice(std::move(to)), calls_(calls) {}
  std::unique_ptr<Queue> makeQueue() override { return std::make_unique<CountingQueue>(to_->makeQueue(), calls_); }
  std::shared_ptr<DeviceCommunicator> communicator(Communicator& over) override { return to_->communicator(over); }

 private:
  QueueCalls& calls_;
};

}  // namespace meshfuse
