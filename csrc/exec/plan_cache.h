// PlanCache: finds, compiles and evicts the plans of a fusion.
//
// Several threads may call at once. A thread that compiles does not block calls that find a plan; threads that want the same new plan
// wait for the one that compiles it. The least recently used plan is evicted first; plans of shapes that the ranks have evicted go too.
// A call with a new shape of a class (exec/shape_class.h) whose program is compiled gets a plan with that program. At most
// kMostShapesOfAClass of its shapes are kept; the programs of at most `most` classes, those used last, are kept, also when no plan with
// such a program is left. The bindings of at most kMostIdleShapes of all shapes of all classes are kept, because each holds an arena; the
// arenas of the others go back to a pool.
//
//   PlanCache::Use use(plans, inputs, call);
//   use.binding().run(...);
//
// Fast path: each call leaves its plan and binding in the slot. The next call takes them from the slot without a lock if its arguments have
// the same facts and no other call is under way.
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

#include "exec/agreement.h"
#include "exec/plan.h"

namespace meshfuse {

class ArenaPool;

class PlanCache {
 public:
  // As compile().
  using Make = std::function<CompiledProgram(std::span<const Argument> inputs, const Agreement::Call& call,
                                             const ProgramChoice& choice)>;
  static constexpr int64_t kMostShapesOfAClass = 8;
  static constexpr int64_t kMostIdleShapes = 4;
  class Use;

  PlanCache(const Fusion& fusion, const Communicator& communicator, size_t most, bool sharesPlans, Make make);
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  // The plan of the last call; null before the first.
  std::shared_ptr<Plan> last() const { return locked(last_); }
  // Why the last call compiled: the difference from the plan used before; empty if it did not compile.
  std::string missReason() const { return locked(missReason_); }
  int64_t compiled() const { return locked(compiled_); }
  // Waits for the work of bindings that no call uses now; throws the first failure.
  void waitForIdle();

 private:
  template <class T>
  T locked(const T& member) const {
    std::lock_guard lock(mutex_);
    return member;
  }

  using PlanPtr = std::shared_ptr<Plan>;
  // A plan to be made.
  struct Request {
    std::vector<ArgumentFacts> facts;
    std::optional<CallSizes> sizes;  // nothing: the arguments do not fit
    ProgramChoice choice;
    std::shared_ptr<const CompiledProgram> compiled;  // null: to be compiled
    bool isAccepted = true;  // false: concretize() has to check that the fusion accepts these sizes of a known class
    std::string miss;
  };

  // A compiled program of a class, and the sizes of the class that the fusion accepts.
  struct KnownClass {
    std::shared_ptr<const CompiledProgram> compiled;
    std::vector<ArgumentFacts> facts;  // of a call
    int64_t least = 0;  // of the only symbol, in the calls so far; read only if PlannedProgram::acceptsBetween
    int64_t most = 0;
  };

  struct Pending {
    std::vector<ArgumentFacts> facts;
    std::shared_future<PlanPtr> plan;
  };

  // A plan and a binding of it that no other call uses.
  struct BoundPlan {
    PlanPtr plan;
    std::unique_ptr<Binding> binding;
  };

  // True if the slot holds a plan for these arguments: the caller owns the slot then, until it releases it. If the slot holds a plan for
  // other arguments, `other` receives that plan.
  bool takeSlot(std::span<const Argument> inputs, BoundPlan& other);
  void releaseSlot();
  // If `make` throws, every thread that waits for the plan gets the exception. `idle` is released.
  BoundPlan get(std::span<const Argument> inputs, const Agreement::Call& call, BoundPlan idle);
  PlanPtr findLocked(std::span<const Argument> inputs);
  Request requestLocked(std::span<const Argument> inputs, const Agreement::Call& call) const;
  PlanProposal proposalOf(std::span<const Argument> inputs, const CallSizes& sizes) const;
  // The same on all ranks, unless this rank plans alone.
  ProgramChoice chooseLocked(std::span<const Argument> inputs, const CallSizes& sizes,
                             const Agreement::Call& call) const;
  // ProgramChoice::whyNotHere for arguments like these.
  std::string whyNotHereLocked(const std::vector<ArgumentFacts>& facts, const ProgramChoice& choice) const;
  // What this rank knows of the class that was chosen, for arguments like these; null if it has compiled no program of it.
  const KnownClass* knownLocked(std::span<const Argument> inputs, const std::vector<ArgumentFacts>& facts,
                                const ProgramChoice& choice, const Agreement::Call& call) const;
  // Adds the sizes of a call to the history, once they have a program: the one compiled for them, or the one that the ranks have agreed on.
  // If a class was wanted and the program is for constant sizes, the history gets the reason too. Null, without a program: nothing is
  // added.
  void noteLocked(const Request& request, const PlannedProgram* program);
  // The plan of its compiled program for the sizes of a call.
  PlanPtr planFor(std::span<const Argument> inputs, const Request& request, const Agreement::Call& call) const;
  // Whether the fusion accepts a shape of the class, because it has accepted a smaller and a larger one.
  static bool isAccepted(const KnownClass& known, const SymbolValues& values);
  void keepLocked(const PlanPtr& plan);
  // The class of a plan that a call uses becomes the one used last.
  void noteUseLocked(const Plan& plan);
  void releaseLocked(BoundPlan idle);
  // Of bindings with symbols; null for a program without.
  ArenaPool* arenasOf(const Plan& plan) const;
  void forgetLocked(const std::vector<Agreement::Shapes>& evicted);
  // Runs what comes before the first message of a call, and releases the lock before peers are told of an error.
  template <class Body>
  void beforeMessages(std::span<const Argument> inputs, const Agreement::Call& call, std::unique_lock<std::mutex>& lock,
                      const Body& body) const;
  // Both release the lock while they compile or wait.
  PlanPtr makeOrAwait(std::span<const Argument> inputs, const Agreement::Call& call,
                      std::unique_lock<std::mutex>& lock);
  PlanPtr make(std::span<const Argument> inputs, const Agreement::Call& call, std::unique_lock<std::mutex>& lock);

  const Fusion& fusion_;
  const size_t most_;
  const bool sharesPlans_;  // between shapes
  const Make make_;
  // Of programs of one rank, and of those whose arenas peers read.
  const std::shared_ptr<ArenaPool> ownArenas_;
  const std::shared_ptr<ArenaPool> sharedArenas_;

  // The thread that sets the flag owns the slot until it clears the flag; a thread that finds it set does not use the slot.
  std::atomic_flag slotTaken_;
  BoundPlan slot_;
  // The plan that the last call found, which is then `last_`; null if it found none. Only this plan may be used from the slot: any other
  // call changes some member below.
  std::atomic<const Plan*> steady_{nullptr};

  mutable std::mutex mutex_;       // guards the members below
  std::list<PlanPtr> plans_;       // most recently used first
  std::list<KnownClass> classes_;  // most recently used first
  std::list<Pending> pending_;
  ShapeHistory history_;
  PlanPtr last_;
  std::string missReason_;
  int64_t compiled_ = 0;
};

// The plan for the arguments of one call, and a binding of it for this call alone.
class PlanCache::Use {
 public:
  // Throws the error of making the plan.
  Use(PlanCache& cache, std::span<const Argument> inputs, const Agreement::Call& call);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  Plan& plan() const { return *(fromSlot_ ? cache_.slot_ : own_).plan; }
  Binding& binding() const { return *(fromSlot_ ? cache_.slot_ : own_).binding; }

 private:
  PlanCache& cache_;
  BoundPlan own_;  // unless from the slot
  const bool fromSlot_;
};

}  // namespace meshfuse
