#include "exec/plan_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "exec/refused_position.h"
#include "host/arena_pool.h"
#include "host/executor.h"
#include "ir/fusion.h"

namespace meshfuse {

PlanCache::PlanCache(const Fusion& fusion, size_t most, bool sharesPlans, Make make)
    : fusion_(fusion),
      most_(most),
      sharesPlans_(sharesPlans),
      make_(std::move(make)),
      ownArenas_(std::make_shared<ArenaPool>()),
      sharedArenas_(std::make_shared<ArenaPool>()),
      history_(fusion) {}

PlanCache::~PlanCache() = default;

PlanCache::BoundPlan PlanCache::get(std::span<const Argument> inputs, const Agreement::Call& call, BoundPlan idle) {
  std::unique_lock lock(mutex_);
  releaseLocked(std::move(idle));
  missReason_.clear();
  PlanPtr plan = findLocked(inputs, call);
  steady_.store(plan.get(), std::memory_order_relaxed);
  if (plan == nullptr) {
    plan = makeOrAwait(inputs, call, lock);
  }
  if (!plan->idle.empty()) {
    std::unique_ptr<Binding> binding = std::move(plan->idle.back());
    plan->idle.pop_back();
    return {std::move(plan), std::move(binding)};
  }
  lock.unlock();
  std::unique_ptr<Binding> binding;
  call.afterAgreement(plan->agreed(), [&] {
    binding = std::make_unique<Binding>(plan->compiled()->host, call.communicator(), plan->sizes(), arenasOf(*plan));
    binding->tellRefusals([program = plan->compiled()](const RefusedIndexError& refusal) {
      throw withPosition(refusal, *program, nullptr,
                         {});  // only devices whose programs have constant sizes refuse late
    });
  });
  return {std::move(plan), std::move(binding)};
}

ArenaPool* PlanCache::arenasOf(const Plan& plan) const {
  const HostProgram& host = plan.host();
  return host.constant != nullptr ? nullptr : host.communicates ? sharedArenas_.get() : ownArenas_.get();
}

void PlanCache::releaseLocked(BoundPlan idle) {
  if (idle.plan == nullptr) {
    return;
  }
  idle.plan->idle.push_back(std::move(idle.binding));
  int64_t shapes = 0;
  for (const PlanPtr& p : plans_) {
    shapes += arenasOf(*p) != nullptr && !p->idle.empty() ? 1 : 0;
    if (shapes > kMostIdleShapes && arenasOf(*p) != nullptr) {
      p->idle.clear();
    }
  }
}

PlanCache::PlanPtr PlanCache::makeOrAwait(std::span<const Argument> inputs, const Agreement::Call& call,
                                          std::unique_lock<std::mutex>& lock) {
  auto made = std::ranges::find_if(pending_, [&](const Pending& p) { return hold(p.facts, inputs); });
  if (made == pending_.end()) {
    return make(inputs, call, lock);
  }
  std::shared_future<PlanPtr> future = made->plan;
  lock.unlock();
  PlanPtr plan = future.get();
  lock.lock();
  return plan;
}

PlanCache::PlanPtr PlanCache::findLocked(std::span<const Argument> inputs, const Agreement::Call& call) {
  const auto found = std::ranges::find_if(plans_, [&](const PlanPtr& p) { return p->holdsFor(inputs); });
  if (found == plans_.end()) {
    return nullptr;
  }
  plans_.splice(plans_.begin(), plans_, found);
  if (last_ != plans_.front()) {  // else copies nothing: a warm call counts no references
    last_ = plans_.front();
  }
  call.use(last_->facts());  // other shapes may have been agreed on since, of a plan that failed to compile
  return last_;
}

PlanCache::PlanPtr PlanCache::make(std::span<const Argument> inputs, const Agreement::Call& call,
                                   std::unique_lock<std::mutex>& lock) {
  const std::optional<SymbolValues> values = sharesPlans_ ? history_.valuesOf(inputs) : std::nullopt;
  ShapeClass sizes =
      sharesPlans_ ? history_.classOf(inputs, values) : ShapeClass{.whyConstant = "plans are not shared"};
  std::promise<PlanPtr> promise;
  auto entry = pending_.insert(pending_.end(), {factsOf(fusion_, inputs), promise.get_future().share()});
  std::shared_ptr<const CompiledProgram> program = programLocked(entry->facts, sizes);
  const bool compiles = program == nullptr;
  const bool isAccepted = !compiles && isAcceptedLocked(*program, sizes.values);
  if (compiles) {
    missReason_ = last_ == nullptr ? "the first call" : difference(last_->facts(), inputs);
  }
  const std::string missReason = missReason_;
  lock.unlock();
  PlanPtr plan;
  std::exception_ptr failure;
  try {
    if (compiles) {
      sizes = sizes.isConstant() ? sizes : history_.plannable(std::move(sizes));
      if (std::getenv("MESHFUSE_PRINT_MISSES") != nullptr) {
        fmt::print(stderr, "[meshfuse] compiling: {}; {}\n", missReason, fmt::join(sizes.toLines(), ", "));
      }
      program = std::make_shared<const CompiledProgram>(make_(inputs, call, sizes));
    }
    call.afterAgreement(program->program.agreed, [&] {
      if (!compiles && !isAccepted) {
        (void)concretize(fusion_, *values);
      }
      plan = std::make_shared<Plan>(entry->facts, program, sizes.values, call.communicator());
    });
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  pending_.erase(entry);
  forgetLocked(call.takeEvicted());
  if (failure) {
    promise.set_exception(failure);
    std::rethrow_exception(failure);
  }
  compiled_ += compiles ? 1 : 0;
  if (values) {
    history_.note(*values);
  }
  keepLocked(plan);
  promise.set_value(plan);
  return plan;
}

std::shared_ptr<const CompiledProgram> PlanCache::programLocked(const std::vector<ArgumentFacts>& facts,
                                                                const ShapeClass& sizes) const {
  const auto like = std::ranges::find_if(plans_, [&](const PlanPtr& p) { return p->isOfClass(facts, sizes); });
  return like == plans_.end() ? nullptr : (*like)->compiled();
}

bool PlanCache::isAcceptedLocked(const CompiledProgram& compiled, const SymbolValues& values) const {
  if (!compiled.program.acceptsBetween) {
    return false;
  }
  const int64_t value = values.begin()->second;
  const auto has = [&](const auto& isOnThisSide) {
    return std::ranges::any_of(plans_, [&](const PlanPtr& p) {
      return p->compiled().get() == &compiled && isOnThisSide(p->values().begin()->second);
    });
  };
  return has([&](int64_t other) { return other <= value; }) && has([&](int64_t other) { return other >= value; });
}

void PlanCache::forgetLocked(const std::vector<Agreement::Shapes>& evicted) {
  for (const Agreement::Shapes& shapes : evicted) {
    const auto isOfThese = [&](const PlanPtr& p) { return haveSameShapes(p->facts(), shapes); };
    std::erase_if(plans_, isOfThese);
    if (last_ != nullptr && isOfThese(last_)) {
      last_ = nullptr;
    }
  }
}

void PlanCache::keepLocked(const PlanPtr& plan) {
  plans_.push_front(plan);
  int64_t shapes = 0;
  std::erase_if(plans_, [&](const PlanPtr& p) {
    shapes += p->compiled() == plan->compiled() ? 1 : 0;
    return p->compiled() == plan->compiled() && shapes > kMostShapesOfAClass;
  });
  if (plans_.size() > most_) {
    plans_.pop_back();
  }
  last_ = plan;
  steady_.store(nullptr, std::memory_order_relaxed);
}

bool PlanCache::takeSlot(std::span<const Argument> inputs, BoundPlan& other) {
  if (slotTaken_.test_and_set(std::memory_order_acquire)) {
    return false;
  }
  bool holds = false;
  try {
    holds = slot_.plan != nullptr && slot_.plan.get() == steady_.load(std::memory_order_relaxed) &&
            slot_.plan->holdsFor(inputs);
  } catch (...) {
    releaseSlot();
    throw;
  }
  if (!holds) {
    std::swap(other, slot_);
    releaseSlot();
  }
  return holds;
}

void PlanCache::waitForIdle() {
  if (!slotTaken_.test_and_set(std::memory_order_acquire)) {
    BoundPlan ofSlot;
    std::swap(ofSlot, slot_);
    releaseSlot();
    const std::lock_guard lock(mutex_);
    releaseLocked(std::move(ofSlot));
  }
  const std::lock_guard lock(mutex_);
  for (const PlanPtr& plan : plans_) {
    for (const std::unique_ptr<Binding>& binding : plan->idle) {
      binding->wait();
    }
  }
}

void PlanCache::releaseSlot() { slotTaken_.clear(std::memory_order_release); }

PlanCache::Use::Use(PlanCache& cache, std::span<const Argument> inputs, const Agreement::Call& call)
    : cache_(cache), fromSlot_(cache.takeSlot(inputs, own_)) {
  if (!fromSlot_) {
    own_ = cache.get(inputs, call, std::move(own_));
  }
}

PlanCache::Use::~Use() {
  if (fromSlot_) {
    cache_.releaseSlot();
    return;
  }
  if (!cache_.slotTaken_.test_and_set(std::memory_order_acquire)) {
    std::swap(own_, cache_.slot_);
    cache_.releaseSlot();
  }
  if (own_.plan != nullptr) {
    std::lock_guard lock(cache_.mutex_);
    cache_.releaseLocked(std::move(own_));
  }
}

}  // namespace meshfuse
