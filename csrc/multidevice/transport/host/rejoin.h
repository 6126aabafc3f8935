// How the survivors of a failed group become a new one: they meet in the shared blocks of the old.
//
// An attempt first settles who takes part. Every rank has a slot with one word that only ever goes one way, to "came" or to
// "out", by compare-and-swap: so all who look at the slots see the same members, and nobody leads. Then the members exchange
// what a new group needs to be opened; an attempt at whose end all members have their world succeeds for all of them. When a
// member fails in between, all give the attempt up and the rest makes another.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/transport/host/bootstrap.h"
#include "multidevice/transport/host/host_group.h"

namespace meshfuse {

// One attempt of one rank; the bootstrap of the new group.
class Rejoin final : public Bootstrap {
 public:
  // Returns when the members are known. DeviceError if this rank is not among them.
  Rejoin(const HostGroup& old, const TransportOptions& options);

  int rank() const override;
  int size() const override { return static_cast<int>(members_.size()); }
  // Old ranks, ascending.
  const std::vector<int>& members() const { return members_; }
  // DeviceError if the attempt is given up, by this rank or another.
  std::vector<std::string> allGather(std::string_view mine) override;

  bool underWay() const;
  // Says that this rank has its world; whether all members have theirs.
  bool succeeds();
  // Gives the attempt up and this rank with it.
  void leave();

 private:
  using Clock = std::chrono::steady_clock;

  RejoinSlot& slot(int rank) const { return old_.of(rank).rejoinSlot(); }
  std::atomic<uint32_t>& verdict() const { return slot(0).verdict; }
  bool settleMembers();
  bool isGone(int rank, Clock::time_point begin) const;
  // Waits until all members have published as much as this rank. False if the attempt is given up.
  bool awaitMembers();
  void giveUp();

  const HostGroup& old_;
  const TransportOptions& options_;
  uint32_t attempt_ = 0;
  uint32_t rounds_ = 0;
  std::vector<int> members_;
};

}  // namespace meshfuse
