// PlanMemo: keeps the plans of one fusion, so that each redistribution is planned once.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

class Fusion;

class PlanMemo {
 public:
  static constexpr std::string_view kName = "plan-memo";

  // planRedistribution() of these arguments; the reference lasts as long as the memo.
  const RedistributionPlan& plan(const ShardState& from, const ShardState& to, const PlanOptions& options);
  // The same with the options from the planner settings of a fusion.
  const RedistributionPlan& plan(const Fusion& fusion, const ShardState& from, const ShardState& to);

  int64_t size() const { return std::ssize(plans_); }

 private:
  struct Entry {
    ShardState from;
    ShardState to;
    PlanOptions options;
    RedistributionPlan plan;
  };

  std::unordered_multimap<uint64_t, Entry> plans_;
};

}  // namespace meshfuse
