// The plans of a fusion: found, made, waited for and forgotten.
//
// Calls of several threads meet here. A thread that must compile does so without holding up calls whose plan is there; threads
// that want the same plan wait for the one that makes it. The least recently used plan goes first, so ranks that make the same
// calls evict alike.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "exec/plan.h"

namespace meshfuse {

class PlanCache {
 public:
  using Make = std::function<CompiledProgram(std::span<const Argument> inputs, const Meeting& meeting)>;

  PlanCache(const Fusion& fusion, size_t most, Make make) : fusion_(fusion), most_(most), make_(std::move(make)) {}

  // Throws what `make` throws, to all who wait for that plan.
  std::shared_ptr<Plan> get(std::span<const Argument> inputs);

  // The plan that the last call got; null before the first.
  std::shared_ptr<Plan> last() const;
  // Why the last call compiled: what differed from the plan used before; "" if it did not.
  std::string missReason() const;
  int64_t compiled() const;

 private:
  using PlanPtr = std::shared_ptr<Plan>;
  struct Pending {
    std::vector<ArgumentFacts> facts;
    std::shared_future<PlanPtr> plan;
  };

  PlanPtr findLocked(std::span<const Argument> inputs);
  bool haveAgreedLocked(std::span<const Argument> inputs);
  void keepLocked(const PlanPtr& plan, std::span<const Argument> inputs);
  PlanPtr makeFor(std::span<const Argument> inputs, std::unique_lock<std::mutex> lock);

  const Fusion& fusion_;
  const size_t most_;
  const Make make_;

  mutable std::mutex mutex_;  // of all below
  std::list<PlanPtr> plans_;  // most recently used first
  std::list<Pending> pending_;
  PlanPtr last_;
  // Shapes that the ranks have agreed on, most recently used first. Strides and alignments may differ from rank to rank and from
  // call to call, so whether to meet the peers must not depend on them: ranks that make the same calls have the same list.
  std::list<std::vector<ArgumentFacts>> agreed_;
  std::string missReason_;
  int64_t compiled_ = 0;
  bool communicates_ = false;  // some plan so far
  int64_t calls_ = 0;
};

}  // namespace meshfuse
