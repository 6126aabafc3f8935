// Queues and devices for tests on GPUs that pass all work on, and do something of their own beside it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "device/cuda/driver/stream_queue.h"
#include "device/forwarding_device.h"
#include "multidevice/transport/device_communicator.h"

namespace meshfuse {

class ForwardingQueue : public StreamQueue {
 public:
  explicit ForwardingQueue(std::unique_ptr<Queue> to) : to_(std::move(to)) {}
  void launch(const Launch& launch) override { to_->launch(launch); }
  void call(const Routine& routine, std::span<void* const> operands, void* out, void* workspace) override {
    to_->call(routine, operands, out, workspace);
  }
  void clear(void* memory, int64_t bytes) override { to_->clear(memory, bytes); }
  void copy(void* to, const void* from, std::span<const BytePiece> pieces) override { to_->copy(to, from, pieces); }
  void copyElements(const StridedElements& to, const StridedElements& from) override { to_->copyElements(to, from); }
  void prepareChecks(int64_t launches) override { to_->prepareChecks(launches); }
  void prepareCopy(const StridedElements& to, const StridedElements& from) override { to_->prepareCopy(to, from); }
  void record(Event& event) override { to_->record(event); }
  void waitFor(const Event& event) override { to_->waitFor(event); }
  bool canCapture() const override { return to_->canCapture(); }
  std::unique_ptr<Recording> capture(const std::function<void()>& work, Queue* beside) override {
    return to_->capture(work, beside != nullptr ? static_cast<ForwardingQueue*>(beside)->to_.get() : nullptr);
  }
  void replay(Recording& recording) override { to_->replay(recording); }
  void retire(std::unique_ptr<Recording> recording) override { to_->retire(std::move(recording)); }
  void orderBefore(GpuStream stream) override { to_->orderBefore(stream); }
  void orderAfter(GpuStream stream) override { to_->orderAfter(stream); }
  void wait() override { to_->wait(); }
  void poll() override { to_->poll(); }
  cuda::Stream stream() const override { return static_cast<StreamQueue&>(*to_).stream(); }

 protected:
  const std::unique_ptr<Queue> to_;
};

// The device of the queues that wrap(queue) makes of those of another GPU.
class QueueWrappingDevice final : public ForwardingDevice {
 public:
  using Wrap = std::function<std::unique_ptr<Queue>(std::unique_ptr<Queue>)>;
  QueueWrappingDevice(std::shared_ptr<Device> to, Wrap wrap)
      : ForwardingDevice(std::move(to)), wrap_(std::move(wrap)) {}
  std::unique_ptr<Queue> makeQueue() override { return wrap_(to_->makeQueue()); }
  std::shared_ptr<DeviceCommunicator> communicator(Communicator& over) override { return to_->communicator(over); }

 private:
  const Wrap wrap_;
};

}  // namespace meshfuse
