// NcclCommunicator: collectives of GPUs by NCCL, on the streams of queues.
//
// Another communicator, whose ranks exchange messages between hosts or threads, compares their programs, names a rank that does not come, and
// tells all of a failure. NCCL moves the data, from GPU to GPU.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device/cuda/api/nccl.h"
#include "device/cuda/driver/streams.h"
#include "device/cuda/nccl/combiner.h"
#include "device/cuda/nccl/registered_memory.h"
#include "multidevice/transport/device_communicator.h"
#include "multidevice/transport/staged.h"

namespace meshfuse {

class NcclCommunicator final : public DeviceCommunicator {
 public:
  // Of the ranks of over.world(), which call it at the same time. Null if two of them share a GPU, or none has NCCL. DeviceError on all of them
  // if their versions of NCCL differ. `over`, `device`, its context and its memory outlive it.
  static std::shared_ptr<DeviceCommunicator> make(Communicator& over, Device& device, const CudaContext& context,
                                                  CudaMemory& memory, LaunchOnStream launch);
  ~NcclCommunicator() override;
  // Why a collective is no call of NCCL alone, which a queue could record; nothing if it is. The same on all ranks.
  static std::optional<std::string> refuse(const CollectiveOfElements& call);

  // As DeviceInfo::combinedBytes.
  static int64_t combinedBytes(const CollectiveOfElements& call, int64_t elements, int64_t ranks);

  std::string_view transport() const override { return "nccl"; }
  bool isAsynchronous() const override { return true; }
  void use(Queue* queue) override;
  void prepare(const Team& team, const CollectiveOfElements& call) override;
  void lend(void* memory) override { lent_ = static_cast<std::byte*>(memory); }
  std::shared_ptr<void> allocateArena(int64_t bytes) override;
  bool usesRegistered(const CollectiveOfElements& call) const override;
  bool enroll(void* arena, std::span<const Team> teams) override;
  void withdraw(void* arena) override;
  void finish() override;
  void giveUp() noexcept override;
  std::unique_ptr<Recording> capture(Queue& queue, const std::function<void()>& work) override;
  void replay(Queue& queue, Recording& recording) override;
  void setStep(int64_t step, std::string_view what) override;
  void run(const CollectiveCall& call) override;
  void transfer(std::span<const Transfer> transfers) override;

 private:
  // A call that is on the stream and may not have ended, or one of a graph.
  struct Call {
    explicit Call(const CudaContext& context) : ended(context) {}
    CudaEvent ended;
    nccl::Communicator communicator = nullptr;
    Team team;
    int64_t step = -1;
    std::string what;
  };

  class Recorded;

  NcclCommunicator(Communicator& over, Device& device, const CudaContext& context, CudaMemory& memory,
                   LaunchOnStream launch);

  // NCCL's communicator of a team, made by its ranks at the first call.
  nccl::Communicator of(const Team& team);
  void enqueue(const CollectiveCall& call, nccl::Communicator team);
  // A reduction that NCCL does not have: the ranks exchange their operands in memory that was lent, and a kernel combines them.
  void combine(const CollectiveCall& call, nccl::Communicator communicator);
  // Makes the kernel of such a combination.
  void prepare(const Combination& combination);
  // Enqueues `calls` as one group. Returns when they have ended, or with a queue when the stream has them. `what`: for errors.
  void post(const Team& team, nccl::Communicator communicator, std::string_view what,
            const std::function<void()>& calls);
  // Waits until ready() or NCCL fails, with the errors and the deadline of the other communicator. `what`: for errors.
  void wait(const Team& team, nccl::Communicator communicator, std::string_view what,
            const std::function<bool()>& ready);
  // DeviceError unless a call for this team succeeded: that of the kernel or of the rank that made NCCL fail, if either is known.
  void expect(nccl::Result status, const Team& team, std::string_view call, std::string_view what);
  // Calls body(). If it throws, NCCL ends, and so does the group of ranks.
  template <class Body>
  void orEnd(const Body& body);
  // For the call that is posted now.
  Call& nextCall();
  // Forgets the calls under way: afterwards no call counts as under way.
  void forgetCalls();
  // Moves the counters of this communicator to the other one, or to the recording.
  void takeCounters();
  // Returns when the peers of these messages have come to the same messages of the same program. DeviceError if their sizes differ.
  void meet(std::span<const Transfer> transfers);
  // Destroys the communicators, after their peers have what they were sent; or ends them after a failure.
  void close() noexcept;
  // Frees memory that has been given back, if this thread is that of the calls and none is under way.
  void reclaim() noexcept;
  // Ends all that NCCL does for this rank; the communicators cannot be used afterwards.
  void end() noexcept;

  const CudaContext& context_;
  StagedCommunicator staged_;  // for calls that GPUs do not make among each other
  Combiner combiner_;
  const std::shared_ptr<RegisteredMemory> registered_;
  const CudaStream own_;                                      // of calls without a queue
  cuda::Stream stream_;                                       // of the next call
  Queue* queue_ = nullptr;                                    // the queue of this stream; null: own_
  const Queue* lastQueue_ = nullptr;                          // of the calls under way
  const int uncaught_;                                        // exceptions, when it was made
  std::map<std::vector<int64_t>, nccl::Communicator> teams_;  // by ranks
  std::vector<Call*> underWay_;                               // since the last finish(), in order
  std::vector<std::unique_ptr<Call>> calls_;                  // of no graph: some under way, then free ones
  int64_t freeCalls_ = 0;                                     // of calls_
  std::vector<Recorded*> recorded_;                           // all that live
  Recorded* recording_ = nullptr;                             // while calls are recorded
  std::byte* lent_ = nullptr;                                 // memory for the next call
  int64_t step_ = -1;
  std::string what_;
  std::atomic<std::thread::id> caller_;   // the thread of the last call
  const std::shared_ptr<void> reclaims_;  // while it lives, reclaim() is called if memory runs out
};

}  // namespace meshfuse
