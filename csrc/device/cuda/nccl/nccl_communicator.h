// NcclCommunicator: collectives of GPUs by NCCL.
//
// Another communicator, whose ranks exchange messages between hosts or threads, brings the ranks together before each collective: it compares
// their programs, names a rank that does not come, and tells all of a failure. NCCL then moves the data, from GPU to GPU.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/api/nccl.h"
#include "device/cuda/driver/streams.h"
#include "multidevice/transport/communicator.h"
#include "multidevice/transport/staged.h"

namespace meshfuse {

class NcclCommunicator final : public Communicator {
 public:
  // Of the ranks of over.world(), which call it at the same time. Null if two of them share a GPU, or none has NCCL. DeviceError on all of them
  // if their versions of NCCL differ. `over`, `device` and its context outlive it.
  static std::shared_ptr<Communicator> make(Communicator& over, Device& device, const CudaContext& context);
  ~NcclCommunicator() override;

  int64_t rank() const override { return over_.rank(); }
  int64_t size() const override { return over_.size(); }
  std::string_view transport() const override { return "nccl"; }
  std::shared_ptr<void> allocate(size_t bytes) override { return device_.allocate(static_cast<int64_t>(bytes)); }
  void run(const CollectiveCall& call) override;
  void transfer(std::span<const Transfer> transfers) override;
  void await(const Team& team, const std::function<bool()>& ready) override { over_.await(team, ready); }
  std::vector<std::string> exchange(std::string_view message) override { return over_.exchange(message); }
  void setStep(int64_t step, std::string_view what) override { over_.setStep(step, what); }
  void setBusy(bool busy) override { over_.setBusy(busy); }
  void abort(std::string_view reason) override { over_.abort(reason); }
  Survivors shrink() override { return over_.shrink(); }
  const TransferCounters& counters() const override { return over_.counters(); }

 private:
  NcclCommunicator(Communicator& over, Device& device, const CudaContext& context);

  // NCCL's communicator of a team, made by its ranks at the first call.
  nccl::Communicator of(const Team& team);
  void enqueue(const CollectiveCall& call, nccl::Communicator team);
  // Enqueues `calls` as one group, and waits until they have ended. `what`: for errors.
  void complete(const Team& team, nccl::Communicator communicator, std::string_view what,
                const std::function<void()>& calls);
  // Waits until NCCL and then the stream are idle.
  void wait(const Team& team, nccl::Communicator communicator, std::string_view what);
  // Calls body(). If it throws, NCCL ends, and so does the group of ranks.
  template <class Body>
  void orEnd(const Body& body);
  // Moves the counters of this communicator to the other one.
  void takeCounters();
  // Returns when the peers of these messages have come to the same messages of the same program. DeviceError if their sizes differ.
  void meet(std::span<const Transfer> transfers);
  // Destroys the communicators, after their peers have what they were sent; or ends them after a failure.
  void close() noexcept;
  // Ends all that NCCL does for this rank; the communicators cannot be used afterwards.
  void end() noexcept;

  Communicator& over_;
  Device& device_;
  const CudaContext& context_;
  StagedCommunicator staged_;  // for calls that NCCL does not carry out as meshfuse defines them
  const CudaStream stream_;
  const int uncaught_;                                        // exceptions, when it was made
  std::map<std::vector<int64_t>, nccl::Communicator> teams_;  // by ranks
};

}  // namespace meshfuse
