// DeviceCommunicator: a communicator for addresses of a device whose memory the host cannot access.
//
// It stands on another communicator of the same ranks, which exchanges control messages and reports failures. A call blocks, as those of
// every communicator. If the communicator is asynchronous and a queue is set, a call is work of this queue instead:
//
//   onDevice.use(&queue);
//   onDevice.allReduce(team, x, y, n, DataType::Float, ReduceOp::Sum);  // begins after the work of the queue so far; returns at once
//   queue.launch(...);                                                  // begins after the all-reduce
//   onDevice.finish();                                                  // all has ended; errors and deadline as for a blocking call
//   onDevice.use(nullptr);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

class DeviceCommunicator : public Communicator {
 public:
  virtual bool isAsynchronous() const { return false; }

  // The functions below are for asynchronous communicators.
  // Calls from now on are work of this queue; null: they block. The ranks must have met before and compared their programs, because calls
  // on queues are not compared. If calls are under way on another queue, use() returns only after they have ended.
  virtual void use(Queue* /*queue*/) {}
  // Makes what such collectives of this team need. All ranks of the team call it, and each rank calls it for its teams in the same order. It
  // may wait for the device.
  virtual void prepare(const Team& /*team*/, const CollectiveOfElements& /*call*/) {}
  // Memory for operands and results. May first wait until the calls so far have ended, and then for the device.
  virtual std::shared_ptr<void> allocateArena(int64_t bytes) { return device_.allocate(bytes); }
  // Whether such a call of a team is faster with memory that is registered.
  virtual bool usesRegistered(const CollectiveOfElements& /*call*/) const { return false; }
  // Registers memory of allocateArena() with these teams, until withdraw() or its end. False if this rank cannot. The caller sees to it
  // that the operands and results of a call are registered on all ranks of its team or on none, at the same offsets in the arena. Both
  // return when the calls so far have ended.
  virtual bool enroll(void* /*arena*/, std::span<const Team> /*teams*/) { return false; }
  virtual void withdraw(void* /*arena*/) {}
  // Gives the next call memory that it uses until it has ended: DeviceInfo::combinedBytes bytes, 16-byte aligned.
  virtual void lend(void* /*memory*/) {}
  // Returns when the calls so far have ended. DeviceError if a peer fails, which names the step of the first call that has not ended.
  virtual void finish() {}
  // As Queue::capture() of `queue`; the calls of this communicator in work() are recorded too. The ranks of a team record the same calls, in
  // the same order among all their calls, and replay the recordings that they have made together.
  virtual std::unique_ptr<Recording> capture(Queue& /*queue*/, const std::function<void()>& /*work*/) {
    return nullptr;
  }
  // Replays such a recording, as work of the queue. Its calls are then under way.
  virtual void replay(Queue& /*queue*/, Recording& /*recording*/) {}
  // Counts a recording that all ranks make now; the number is the same on all of them, and never 0.
  int64_t countRecording() { return ++recordings_; }
  // After a failure of this rank: ends the calls under way, so that the queue gets idle. The communicator cannot be used afterwards.
  virtual void giveUp() noexcept {}

  int64_t rank() const override { return over_.rank(); }
  int64_t size() const override { return over_.size(); }
  std::shared_ptr<void> allocate(size_t bytes) override { return device_.allocate(static_cast<int64_t>(bytes)); }
  void await(const Team& team, const std::function<bool()>& ready) override { over_.await(team, ready); }
  std::vector<std::string> exchange(std::string_view message) override { return over_.exchange(message); }
  void setStep(int64_t step, std::string_view what) override { over_.setStep(step, what); }
  void setBusy(bool busy) override { over_.setBusy(busy); }
  void abort(std::string_view reason) override { over_.abort(reason); }
  const TransferCounters& counters() const override { return over_.counters(); }

 protected:
  Survivors survivors() override { return over_.shrink(); }

  // Both outlive this communicator.
  DeviceCommunicator(Communicator& over, Device& device) : over_(over), device_(device) { world_ = over.world(); }

  Communicator& over_;
  Device& device_;

 private:
  int64_t recordings_ = 0;
};

}  // namespace meshfuse
