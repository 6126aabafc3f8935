// Rejoin of the survivors of a failed group on one host, through the shared blocks of the failed group.
//
// An attempt first determines the members. Every rank has a slot with one word that changes only once, to "came" or to "out", by
// compare-and-swap. So all ranks see the same members, without a leader. Then the members exchange the data that a new group needs. The
// attempt succeeds if all members have opened the new world. If a member fails before that, all members abandon the attempt, and the
// remaining ranks start another one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/host_group.h"

namespace meshfuse {

// One attempt of one rank; the bootstrap of the new group.
class Rejoin final : public Bootstrap {
 public:
  // Returns when the members are known. DeviceError if this rank is not among them; after any other exception it takes no part any more.
  Rejoin(const HostGroup& old, const TransportOptions& options);

  int64_t rank() const override;
  int64_t size() const override { return std::ssize(members_); }
  // Old ranks, ascending.
  const std::vector<int64_t>& members() const { return members_; }
  // DeviceError if this rank or another one abandons the attempt.
  std::vector<std::string> allGather(std::string_view mine) override;

  bool isUnderWay() const override;
  // Reports that this rank has opened its world. True if all members have.
  bool succeeds();
  // Abandons the attempt; this rank takes no part in later ones.
  void leave();

 private:
  using Clock = WaitingClock;

  RejoinSlot& slot(int64_t rank) const { return old_.of(rank).rejoinSlot(); }
  std::atomic<uint32_t>& verdict() const { return slot(0).verdict; }
  bool settleMembers();
  [[noreturn]] void throwTooLate(std::string_view why) const;
  bool isGone(int64_t rank, Clock::time_point begin) const;
  // Waits until all members have published as many messages as this rank. False if the attempt is abandoned.
  bool awaitMembers();
  void giveUp();

  const HostGroup& old_;
  const TransportOptions& options_;
  uint32_t attempt_ = 0;
  uint32_t rounds_ = 0;
  std::vector<int64_t> members_;
};

}  // namespace meshfuse
