#include "exec/plan_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

namespace meshfuse {

PlanCache::Seated PlanCache::get(std::span<const Argument> inputs, int64_t call, Seated idle) {
  std::unique_lock lock(mutex_);
  giveBackLocked(std::move(idle));
  missReason_.clear();
  PlanPtr plan = findLocked(inputs);
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
  auto binding = std::make_unique<Binding>(plan->compiled().host, communicator_);
  return {std::move(plan), std::move(binding)};
}

void PlanCache::giveBack(Seated idle) {
  std::lock_guard lock(mutex_);
  giveBackLocked(std::move(idle));
}

void PlanCache::giveBackLocked(Seated idle) {
  if (idle.plan != nullptr) {
    idle.plan->idle.push_back(std::move(idle.binding));
  }
}

PlanCache::PlanPtr PlanCache::makeOrAwait(std::span<const Argument> inputs, int64_t call,
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

PlanCache::PlanPtr PlanCache::findLocked(std::span<const Argument> inputs) {
  if (last_ != nullptr && hold(last_->facts(), inputs)) {
    return last_;
  }
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if (hold((*it)->facts(), inputs)) {
      plans_.splice(plans_.begin(), plans_, it);
      (void)haveAgreedLocked(inputs);
      last_ = plans_.front();
      return last_;
    }
  }
  return nullptr;
}

PlanCache::PlanPtr PlanCache::make(std::span<const Argument> inputs, int64_t call, std::unique_lock<std::mutex>& lock) {
  missReason_ = last_ == nullptr ? "the first call" : difference(last_->facts(), inputs);
  if (std::getenv("MESHFUSE_PRINT_MISSES") != nullptr) {
    fmt::print(stderr, "[meshfuse] compiling: {}\n", missReason_);
  }
  const Meeting meeting{
      .call = call, .agreed = haveAgreedLocked(inputs), .expected = compiled_ == 0 || communicates_, .maxPlans = most_};
  std::promise<PlanPtr> promise;
  auto entry = pending_.insert(pending_.end(), {factsOf(fusion_, inputs), promise.get_future().share()});
  lock.unlock();
  PlanPtr plan;
  std::exception_ptr failure;
  try {
    plan = std::make_shared<Plan>(entry->facts, make_(inputs, meeting));
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  pending_.erase(entry);
  if (failure) {
    promise.set_exception(failure);
    std::rethrow_exception(failure);
  }
  keepLocked(plan, inputs);
  promise.set_value(plan);
  return plan;
}

// True if the ranks have agreed on a plan for shapes like these, which are then the most recently used.
bool PlanCache::haveAgreedLocked(std::span<const Argument> inputs) {
  for (auto it = agreed_.begin(); it != agreed_.end(); ++it) {
    if (haveShapesOf(*it, inputs)) {
      agreed_.splice(agreed_.begin(), agreed_, it);
      return true;
    }
  }
  return false;
}

// The shapes that are forgotten for a plan take their plans along, as the ranks will agree on them anew.
void PlanCache::keepLocked(const PlanPtr& plan, std::span<const Argument> inputs) {
  compiled_++;
  communicates_ = communicates_ || plan->redistributes();
  plans_.push_front(plan);
  if (!haveAgreedLocked(inputs)) {
    agreed_.push_front(plan->facts());
    if (agreed_.size() > most_) {
      std::erase_if(plans_, [&](const PlanPtr& p) { return haveSameShapes(p->facts(), agreed_.back()); });
      agreed_.pop_back();
    }
  }
  if (plans_.size() > most_) {
    plans_.pop_back();
  }
  last_ = plan;
  steady_.store(nullptr, std::memory_order_relaxed);
}

bool PlanCache::takeSeat(std::span<const Argument> inputs, Seated& other) {
  if (seatTaken_.test_and_set(std::memory_order_acquire)) {
    return false;
  }
  if (seat_.plan != nullptr && seat_.plan.get() == steady_.load(std::memory_order_relaxed) &&
      hold(seat_.plan->facts(), inputs)) {
    return true;
  }
  std::swap(other, seat_);
  leaveSeat();
  return false;
}

void PlanCache::leaveSeat() { seatTaken_.clear(std::memory_order_release); }

PlanCache::Use::Use(PlanCache& cache, std::span<const Argument> inputs, int64_t call)
    : cache_(cache), fromSeat_(cache.takeSeat(inputs, own_)) {
  if (!fromSeat_) {
    own_ = cache.get(inputs, call, std::move(own_));
  }
}

PlanCache::Use::~Use() {
  if (fromSeat_) {
    cache_.leaveSeat();
    return;
  }
  if (!cache_.seatTaken_.test_and_set(std::memory_order_acquire)) {
    std::swap(own_, cache_.seat_);
    cache_.leaveSeat();
  }
  if (own_.plan != nullptr) {
    cache_.giveBack(std::move(own_));
  }
}

std::shared_ptr<Plan> PlanCache::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

std::string PlanCache::missReason() const {
  std::lock_guard lock(mutex_);
  return missReason_;
}

int64_t PlanCache::compiled() const {
  std::lock_guard lock(mutex_);
  return compiled_;
}

}  // namespace meshfuse
