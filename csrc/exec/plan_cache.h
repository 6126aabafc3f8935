// The plans of a fusion: found, made, waited for and forgotten.
//
// Calls of several threads meet here. A thread that must compile does so without holding up calls whose plan is there; threads
// that want the same plan wait for the one that makes it. The least recently used plan goes first, so ranks that make the same
// calls evict alike.
//
//   PlanCache::Use use(plans, inputs, call);
//   use.binding().run(...);
//
// A call that is like the one before it, with no other call under way, finds plan and binding where that one left them: on the seat,
// without a lock.
#pragma once

#include <atomic>
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
#include "host/executor.h"

namespace meshfuse {

class PlanCache {
 public:
  using Make = std::function<CompiledProgram(std::span<const Argument> inputs, const Meeting& meeting)>;
  class Use;

  PlanCache(const Fusion& fusion, Communicator& communicator, size_t most, Make make)
      : fusion_(fusion), communicator_(communicator), most_(most), make_(std::move(make)) {}

  // The plan of the last call; null before the first.
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

  // A plan and a binding of it that nobody else uses.
  struct Seated {
    PlanPtr plan;
    std::unique_ptr<Binding> binding;
  };

  // True if the seat holds a plan for these arguments: it is the caller's then, until it leaves. Else the seat is empty or another's.
  // What was on the seat for other arguments is handed out.
  bool takeSeat(std::span<const Argument> inputs, Seated& other);
  void leaveSeat();
  // call: its number, by which ranks tell whether they make the same one. Throws what `make` throws, to all who wait for that plan.
  // idle: what the caller does not need any more.
  Seated get(std::span<const Argument> inputs, int64_t call, Seated idle);
  void giveBack(Seated idle);
  void giveBackLocked(Seated idle);
  PlanPtr findLocked(std::span<const Argument> inputs);
  bool haveAgreedLocked(std::span<const Argument> inputs);
  void keepLocked(const PlanPtr& plan, std::span<const Argument> inputs);
  // Both let the lock go meanwhile.
  PlanPtr makeOrAwait(std::span<const Argument> inputs, int64_t call, std::unique_lock<std::mutex>& lock);
  PlanPtr make(std::span<const Argument> inputs, int64_t call, std::unique_lock<std::mutex>& lock);

  const Fusion& fusion_;
  Communicator& communicator_;
  const size_t most_;
  const Make make_;

  // Whoever sets the flag has the seat, until it clears it; whoever finds it set goes without.
  std::atomic_flag seatTaken_;
  Seated seat_;
  // The plan that the last call found, which is then `last_`; null if it found none. Only this plan may be used from the seat: for
  // any other there is something to be noted below.
  std::atomic<const Plan*> steady_{nullptr};

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
};

// The plan for the arguments of one call, and a binding of it for this call alone.
class PlanCache::Use {
 public:
  // Throws what making the plan throws. call: see above.
  Use(PlanCache& cache, std::span<const Argument> inputs, int64_t call);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Plan& plan() const { return *(fromSeat_ ? cache_.seat_ : own_).plan; }
  Binding& binding() const { return *(fromSeat_ ? cache_.seat_ : own_).binding; }

 private:
  PlanCache& cache_;
  Seated own_;  // unless from the seat
  const bool fromSeat_;
};

}  // namespace meshfuse
