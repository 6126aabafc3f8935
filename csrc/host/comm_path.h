// CommPath: how one thread carries out the communication steps of a host program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "host/program.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

class DeviceCommunicator;

class CommPath {
 public:
  // Addresses are those of the program's device. If the host cannot access them, the device's own communicator carries the calls; without
  // one, or unless `mayBeOfDevice`, `communicator` gets copies in host memory. If the program communicates, all ranks make their paths in the
  // same order. The communicator and the device outlive the path.
  CommPath(Communicator& communicator, const HostProgram& program, bool mayBeOfDevice);

  struct Call {
    const Step& step;
    const StepSizes& sizes;
    int64_t number;  // of the step
    const void* in;
    void* out;
    char* arena;
    int64_t root;  // of a broadcast
  };
  // Begin and end the calls of a run. Only one path of a communicator has begun at a time, if calls are asynchronous.
  void begin();
  void end();
  // Returns when the result is complete; if calls are asynchronous, when it is work of the queue. DeviceError if a peer fails.
  void run(const Call& call);
  // Returns when the calls so far have ended. DeviceError if a peer fails.
  void finishCalls();
  // Returns when all work of the queue has ended. DeviceError if a peer fails.
  void finish();
  // Of asynchronous calls: as DeviceCommunicator's.
  std::unique_ptr<Recording> capture(Queue& queue, const std::function<void()>& work);
  void replay(Queue& queue, Recording& recording);
  int64_t countRecording();
  // The team whose communicator of the device carries a step.
  const Team& teamOf(const CommCall& call) const;
  // As DeviceCommunicator's, of asynchronous calls.
  std::shared_ptr<void> allocateArena(int64_t bytes);
  bool usesRegistered(const CommCall& call) const;
  bool enroll(void* arena, std::span<const Team> teams);
  void withdraw(void* arena);
  // After a failure: ends the calls under way.
  void giveUp() noexcept;
  // Bytes that all calls of the communicator have received so far.
  int64_t bytesReceived() const;
  Queue& queue() const { return *queue_; }
  // Whether the device's own communicator carries the calls: all of a rank in one order, the same on all ranks.
  bool isOfDevice() const { return isOfDevice_; }
  // Whether calls may return before they have ended.
  bool isAsynchronous() const { return isAsynchronous_; }
  // Ends the group; thread-safe.
  void abort(std::string_view why) { communicator_.abort(why); }
  // Moves the counters of a lane's calls to this communicator.
  void takeCounters(const CommPath& lane);

 private:
  void collective(const Call& call);
  void uneven(const Call& call);
  void transfer(const Call& call);
  // Before and after a call that the host makes: its operand is complete, its result may be read.
  void settle() {
    if (!isAsynchronous_) {
      queue_->wait();
    }
  }
  Communicator& comm() const;

  Communicator& communicator_;
  std::shared_ptr<DeviceCommunicator> onDevice_;  // null: the communicator accesses the memory of the device
  bool isOfDevice_ = false;                       // onDevice_ is the device's own
  bool isAsynchronous_ = false;
  std::unique_ptr<Queue> queue_;  // packs and unpacks, and carries asynchronous calls
  std::vector<Communicator::Transfer> transfers_;
};

}  // namespace meshfuse
