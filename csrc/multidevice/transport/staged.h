// StagedCommunicator: a communicator for addresses of a device whose memory the host cannot access. Each call copies its operand to host
// memory, communicates there, and copies the result back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "multidevice/transport/device_communicator.h"

namespace meshfuse {

class StagedCommunicator final : public DeviceCommunicator {
 public:
  // `over` carries the calls. Both outlive this communicator.
  StagedCommunicator(Communicator& over, Device& device) : DeviceCommunicator(over, device) {}

  std::string_view transport() const override { return over_.transport(); }
  void run(const CollectiveCall& call) override;
  void transfer(std::span<const Transfer> transfers) override;

 private:
  // Host memory of at least this size, kept for later calls.
  std::byte* staging(int64_t bytes);

  std::shared_ptr<void> memory_;
  int64_t bytes_ = 0;
  std::vector<Transfer> staged_;
};

}  // namespace meshfuse
