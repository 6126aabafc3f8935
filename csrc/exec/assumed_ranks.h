// A rank of ranks that do not exist, to compile a program for more ranks than there are.
#pragma once

#include <cstdint>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

// All ranks send the messages of this one. InternalError for calls that move data.
class AssumedRanks final : public Communicator {
 public:
  explicit AssumedRanks(int64_t size, int64_t rank = 0);

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  std::string_view transport() const override { return "assumed"; }
  std::shared_ptr<void> allocate(size_t bytes) override { return allocateOrdinary(bytes); }
  void run(const CollectiveCall& call) override;
  void transfer(std::span<const Transfer> transfers) override;
  void await(const Team& team, const std::function<bool()>& ready) override;
  std::vector<std::string> exchange(std::string_view message) override;
  void setStep(int64_t /*step*/, std::string_view /*what*/) override {}
  void setBusy(bool /*busy*/) override {}
  void abort(std::string_view /*reason*/) override {}

 private:
  const int64_t size_;
  const int64_t rank_;
};

}  // namespace meshfuse
