#include "exec/plan_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <ranges>
#include <utility>

#include "exec/arguments.h"
#include "exec/refused_position.h"
#include "host/agreed_sizes.h"
#include "host/arena_pool.h"
#include "host/executor.h"
#include "ir/fusion.h"

namespace meshfuse {

PlanCache::PlanCache(const Fusion& fusion, const Communicator& communicator, size_t most, bool sharesPlans, Make make)
    : fusion_(fusion),
      most_(most),
      sharesPlans_(sharesPlans),
      make_(std::move(make)),
      ownArenas_(std::make_shared<ArenaPool>()),
      sharedArenas_(std::make_shared<ArenaPool>()),
      history_(fusion, communicator.rank(), communicator.size()) {}

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

PlanCache::OfClass PlanCache::classLocked(std::span<const Argument> inputs, const std::vector<ArgumentFacts>& facts,
                                          const std::optional<CallSizes>& sizes,
                                          const std::map<std::string, std::string>& layouts) const {
  if (!sharesPlans_) {
    return {.sizes = {.whyConstant = "plans are not shared"}};
  }
  OfClass result{.sizes = history_.classOf(inputs, sizes, layouts)};
  result.program = programLocked(facts, result.sizes);
  result.isAccepted = result.program != nullptr && isAcceptedLocked(*result.program, result.sizes.values);
  return result;
}

PlanCache::OfClass PlanCache::knownClass(const std::vector<ArgumentFacts>& facts, const CallSizes& sizes,
                                         OfClass own) const {
  const auto known =
      std::ranges::find_if(agreed_, [&](const AgreedProgram& a) { return haveSameShapes(a.shapes, facts); });
  if (known == agreed_.end()) {
    return own;
  }
  if (known->program == nullptr) {
    return {.sizes = {.whyConstant = "the ranks have agreed on constant sizes"}};
  }
  OfClass result{.sizes = known->program->program.sizes, .isAccepted = true, .agreed = known->program};
  result.sizes.values = result.sizes.valuesFor(sizes.values);
  if (haveSameFactsBesideSizes(known->shapes, facts)) {  // as when this rank took the program
    result.program = result.agreed;
  }
  return result;
}

PlanCache::OfClass PlanCache::agreedClass(std::span<const Argument> inputs, const Agreement::Call& call,
                                          const std::vector<ArgumentFacts>& facts, const CallSizes& sizes,
                                          OfClass own) {
  std::map<std::string, std::string> layouts = history_.layoutReasons(inputs);
  const std::string does = own.program == nullptr ? "compiles"
                                                  : fmt::format("binds {:x}, overlap {}", own.program->host->identity,
                                                                own.program->host->overlap.allowed);
  std::string remark = does;
  for (const auto& [symbol, why] : layouts) {
    remark += fmt::format("\t{}\t{}", symbol, why);
  }
  const PlanProposal proposal{fusion_, inputs, sizes.global, sizes.assumed};
  const std::vector<std::string> remarks = call.compareSizes(proposal, remark);
  for (const std::string& of : remarks) {
    std::vector<std::string_view> words;
    for (const auto word : of | std::views::split('\t')) {
      words.emplace_back(word.begin(), word.end());
    }
    own.program = words[0] == does ? own.program : nullptr;
    for (size_t k = 1; k + 1 < words.size(); k += 2) {
      layouts.try_emplace(std::string(words[k]), words[k + 1]);
    }
  }
  if (!layouts.empty()) {  // of some rank, which may have no program of this class
    own.program = nullptr;
    const std::lock_guard lock(mutex_);
    own.sizes = classLocked(inputs, facts, sizes, layouts).sizes;
  }
  return own;
}

PlanCache::PlanPtr PlanCache::make(std::span<const Argument> inputs, const Agreement::Call& call,
                                   std::unique_lock<std::mutex>& lock) {
  const std::vector<ArgumentFacts> facts = factsOf(fusion_, inputs);
  const std::optional<CallSizes> ofCall = sharesPlans_ ? history_.sizesOf(inputs) : std::nullopt;
  OfClass made = classLocked(inputs, facts, ofCall,
                             ofCall ? history_.layoutReasons(inputs) : std::map<std::string, std::string>());
  const std::string miss = last_ == nullptr ? "the first call" : difference(last_->facts(), inputs);
  const bool isNew = !call.use(facts);  // to the ranks
  // on some rank, whose arguments may have other layouts
  const bool mayShare = ofCall && !history_.classOf(inputs, ofCall, {}).isConstant();
  if (isNew && !mayShare && !made.sizes.isConstant()) {  // a class that only this rank's layouts leave
    made = {.sizes = {.whyConstant = "the other ranks take constant sizes"}};
  }
  if (!isNew && ofCall) {
    made = knownClass(facts, *ofCall, std::move(made));
  }
  std::promise<PlanPtr> promise;
  const auto entry = pending_.insert(pending_.end(), {facts, promise.get_future().share()});
  lock.unlock();
  PlanPtr plan;
  std::exception_ptr failure;
  bool compiles = false;
  ShapeClass wanted;  // by all ranks
  try {
    const bool compares = mayShare && call.comparesSizes({fusion_, inputs, ofCall->global, ofCall->assumed});
    if (made.program != nullptr && isNew) {
      const auto checkShapes = [&] { checkLocalShapes(*made.program->program.local, inputs, made.sizes.values); };
      if (compares) {
        call.beforeAgreement({fusion_, inputs, ofCall->global, ofCall->assumed}, checkShapes);
      } else {
        checkShapes();
      }
    }
    if (compares) {
      made = agreedClass(inputs, call, facts, *ofCall, std::move(made));
    }
    compiles = made.program == nullptr;
    if (compiles) {
      wanted = made.agreed == nullptr ? made.sizes : ShapeClass();
      made.program = std::make_shared<const CompiledProgram>(make_(inputs, call, made.sizes, made.agreed.get()));
      made.sizes = made.program->program.sizes;
      if (std::getenv("MESHFUSE_PRINT_MISSES") != nullptr) {
        fmt::print(stderr, "[meshfuse] compiling: {}; {}\n", miss, fmt::join(made.sizes.toLines(), ", "));
      }
    }
    const CompiledProgram& program = *made.program;
    call.afterAgreement(program.program.agreed, [&] {
      if (!compiles && !made.isAccepted) {
        (void)concretize(fusion_, ofCall->values);
      }
      const SymbolValues& values = made.sizes.values;
      AgreedPlan agreed = program.program.agreed;
      if (!values.empty() && made.program->host->constant == nullptr) {
        agreed = call.forSizes(agreed, {fusion_, inputs, ofCall->global}, values);
      }
      plan = std::make_shared<Plan>(
          facts, made.program, std::move(agreed), values,
          isNew ? agreedSizes(*program.host, values, call.communicator()) : sizesFor(*program.host, values));
    });
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  pending_.erase(entry);
  forgetLocked(call.takeEvicted());
  missReason_ = compiles ? miss : "";
  if (compiles && plan != nullptr && !wanted.isConstant() && made.sizes.isConstant()) {
    history_.refuse(wanted, made.sizes.whyConstant);
  }
  if (failure) {
    if (isNew && ofCall && call.use(facts)) {  // the ranks have agreed: peers may have a plan
      history_.note(ofCall->values);
    }
    promise.set_exception(failure);
    std::rethrow_exception(failure);
  }
  compiled_ += compiles ? 1 : 0;
  if (ofCall) {
    history_.note(ofCall->values);
  }
  if (isNew) {
    agreed_.push_back({facts, made.sizes.isConstant() ? nullptr : made.program});
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
    std::erase_if(agreed_, [&](const AgreedProgram& a) { return haveSameShapes(a.shapes, shapes); });
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
