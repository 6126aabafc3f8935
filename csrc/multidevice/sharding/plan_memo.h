// PlanMemo: keeps the plans of one fusion, so that each redistribution is planned once.
//
// If sizes are symbols, their plans and costs are those for the values of one call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

class Fusion;

class PlanMemo {
 public:
  static constexpr std::string_view kName = "plan-memo";

  // The values of size symbols. Call it before the first plan.
  void takeSizes(std::map<std::string, int64_t> values) { values_ = std::move(values); }
  // An extent, or a state, for these values. A symbol without a value stays.
  [[nodiscard]] IntExpr atSizes(const IntExpr& size) const;
  [[nodiscard]] ShardState atSizes(const ShardState& state) const;

  // planRedistribution() of these arguments for the values of symbols; the reference lasts as long as the memo. UserError if a symbol has no
  // value, or the parts of a symbolic dim are not known.
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

  const RedistributionPlan& ofConstants(const ShardState& from, const ShardState& to, const PlanOptions& options);

  std::map<std::string, int64_t> values_;
  std::unordered_multimap<uint64_t, Entry> plans_;
};

}  // namespace meshfuse
