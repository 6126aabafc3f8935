// StagedCommunicator: a communicator for addresses of a device whose memory the host cannot access. Each call copies its operand to host
// memory, communicates there, and copies the result back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

class StagedCommunicator final : public Communicator {
 public:
  // `over` carries the calls. Both outlive this communicator.
  StagedCommunicator(Communicator& over, Device& device);

  int64_t rank() const override { return over_.rank(); }
  int64_t size() const override { return over_.size(); }
  std::string_view transport() const override { return over_.transport(); }
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
  // Host memory of at least this size, kept for later calls.
  std::byte* staging(int64_t bytes);

  Communicator& over_;
  Device& device_;
  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  std::vector<Transfer> staged_;
};

}  // namespace meshfuse
