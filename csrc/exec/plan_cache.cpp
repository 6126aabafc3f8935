#include "exec/plan_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>

#include "base/error.h"
#include "exec/arguments.h"
#include "exec/compile.h"
#include "exec/refused_position.h"
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
  PlanPtr plan;
  beforeMessages(inputs, call, lock, [&] { plan = findLocked(inputs); });
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

template <class Body>
void PlanCache::beforeMessages(std::span<const Argument> inputs, const Agreement::Call& call,
                               std::unique_lock<std::mutex>& lock, const Body& body) const {
  std::exception_ptr failure;
  try {
    return body();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.unlock();
  call.beforeAgreement({fusion_, inputs}, [&] { std::rethrow_exception(failure); });
}

PlanCache::PlanPtr PlanCache::makeOrAwait(std::span<const Argument> inputs, const Agreement::Call& call,
                                          std::unique_lock<std::mutex>& lock) {
  auto made = pending_.end();
  beforeMessages(inputs, call, lock, [&] {
    made = std::ranges::find_if(pending_, [&](const Pending& p) { return hold(p.facts, inputs); });
  });
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
  const auto found = std::ranges::find_if(plans_, [&](const PlanPtr& p) { return p->holdsFor(inputs); });
  if (found == plans_.end()) {
    return nullptr;
  }
  plans_.splice(plans_.begin(), plans_, found);
  if (last_ != plans_.front()) {  // else copies nothing: a warm call counts no references
    last_ = plans_.front();
    noteUseLocked(*last_);
  }
  return last_;
}

PlanCache::PlanPtr PlanCache::make(std::span<const Argument> inputs, const Agreement::Call& call,
                                   std::unique_lock<std::mutex>& lock) {
  Request request;
  std::promise<PlanPtr> promise;
  auto entry = pending_.end();
  beforeMessages(inputs, call, lock, [&] {
    request = requestLocked(inputs, call);
    entry = pending_.insert(pending_.end(), {request.facts, promise.get_future().share()});
  });
  lock.unlock();
  const bool compiles = request.compiled == nullptr;
  PlanPtr plan;
  std::exception_ptr failure;
  try {
    if (compiles) {
      request.compiled = std::make_shared<const CompiledProgram>(make_(inputs, call, request.choice));
      if (std::getenv("MESHFUSE_PRINT_MISSES") != nullptr) {
        fmt::print(stderr, "[meshfuse] compiling: {}; {}\n", request.miss,
                   fmt::join(request.compiled->program.sizes.toLines(), ", "));
      }
    }
    plan = planFor(inputs, request, call);
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  pending_.erase(entry);
  forgetLocked(call.takeEvicted());
  missReason_ = compiles ? request.miss : "";
  if (request.sizes && call.plansAlone(fusion_)) {
    noteLocked(request, failure ? nullptr : &request.compiled->program);
  } else if (request.sizes) {  // what the ranks remember, whether this rank has failed or not
    noteLocked(request, call.agreed(proposalOf(inputs, *request.sizes).shapes()).get());
  }
  if (failure) {
    promise.set_exception(failure);
    std::rethrow_exception(failure);
  }
  compiled_ += compiles ? 1 : 0;
  keepLocked(plan);
  promise.set_value(plan);
  return plan;
}

PlanCache::Request PlanCache::requestLocked(std::span<const Argument> inputs, const Agreement::Call& call) const {
  Request r{.facts = factsOf(fusion_, inputs), .sizes = history_.sizesOf(inputs)};
  const KnownClass* known = nullptr;
  if (r.sizes) {
    r.choice = chooseLocked(inputs, *r.sizes, call);
    r.choice.whyNotHere = whyNotHereLocked(r.facts, r.choice);
    known = knownLocked(inputs, r.facts, r.choice, call);
  }
  if (known == nullptr) {
    r.miss = last_ == nullptr ? "the first call" : difference(last_->facts(), inputs);
  } else {
    r.compiled = known->compiled;
    r.isAccepted = isAccepted(*known, r.choice.sizes.values);
  }
  return r;
}

PlanProposal PlanCache::proposalOf(std::span<const Argument> inputs, const CallSizes& sizes) const {
  return {fusion_, inputs, sizes.global, sizes.assumed};
}

ProgramChoice PlanCache::chooseLocked(std::span<const Argument> inputs, const CallSizes& sizes,
                                      const Agreement::Call& call) const {
  const bool isAlone = call.plansAlone(fusion_);
  const std::string_view why = !sharesPlans_                             ? "plans are not shared"
                               : !isAlone && !call.peersCompare(fusion_) ? "ranks compare no plan"
                                                                         : "";
  const ShapeClass wanted =
      why.empty() ? history_.classOf(inputs, sizes,
                                     isAlone ? layoutReasons(fusion_, inputs) : std::map<std::string, std::string>())
                  : ShapeClass{.whyConstant = std::string(why)};
  return call.choose(proposalOf(inputs, sizes), wanted, sizes.values);
}

std::string PlanCache::whyNotHereLocked(const std::vector<ArgumentFacts>& facts, const ProgramChoice& choice) const {
  const auto failed = std::ranges::find_if(plans_, [&](const PlanPtr& p) {
    const SegmentedProgram& program = p->compiled()->program;
    return !program.whyNotHere.empty() && program.agreedOn == choice.program &&
           haveSameFactsBesideSizes(p->facts(), facts);
  });
  return failed == plans_.end() ? "" : (*failed)->compiled()->program.whyNotHere;
}

void PlanCache::noteLocked(const Request& request, const PlannedProgram* program) {
  if (program == nullptr) {
    return;
  }
  history_.note(request.sizes->values);
  if (!request.choice.sizes.isConstant() && program->sizes.isConstant()) {
    history_.refuse(request.choice.sizes, program->sizes.whyConstant);
  }
}

PlanCache::PlanPtr PlanCache::planFor(std::span<const Argument> inputs, const Request& request,
                                      const Agreement::Call& call) const {
  invariant(request.sizes.has_value(), "[run] arguments without sizes were compiled");
  const std::shared_ptr<const CompiledProgram>& compiled = request.compiled;
  const SegmentedProgram& program = compiled->program;
  const std::shared_ptr<const PlannedProgram>& agreedOn = program.agreedOn;
  if (agreedOn->sizes.isConstant()) {
    return std::make_shared<Plan>(request.facts, request.sizes->global, compiled, program.agreed, SymbolValues(),
                                  compiled->host->constant);
  }
  const PlanProposal proposal = proposalOf(inputs, *request.sizes);
  const SymbolValues values = agreedOn->sizes.valuesFor(request.sizes->values);
  const SymbolValues ofProgram = program.sizes.isConstant() ? SymbolValues() : values;
  std::shared_ptr<const ProgramSizes> sizes;
  call.afterPlanning(proposal, *agreedOn, [&] {
    checkLocalShapes(*program.local, inputs, ofProgram);
    if (!request.isAccepted) {
      (void)concretize(fusion_, request.sizes->values);
    }
    sizes = sizesFor(*compiled->host, ofProgram);
  });
  return std::make_shared<Plan>(request.facts, request.sizes->global, compiled,
                                call.agreeOnSizes(proposal, agreedOn, values), ofProgram, sizes);
}

const PlanCache::KnownClass* PlanCache::knownLocked(std::span<const Argument> inputs,
                                                    const std::vector<ArgumentFacts>& facts,
                                                    const ProgramChoice& choice, const Agreement::Call& call) const {
  if (choice.sizes.isConstant() ||
      (!call.plansAlone(fusion_) &&
       (choice.program == nullptr || !choice.sizes.whyNotFor(layoutReasons(fusion_, inputs)).empty()))) {
    return nullptr;
  }
  const auto like = std::ranges::find_if(classes_, [&](const KnownClass& known) {
    const SegmentedProgram& program = known.compiled->program;
    return isSameClass(program.sizes, choice.sizes) && haveSameFactsBesideSizes(known.facts, facts) &&
           (choice.program == nullptr || program.agreedOn == choice.program);
  });
  return like == classes_.end() ? nullptr : &*like;
}

bool PlanCache::isAccepted(const KnownClass& known, const SymbolValues& values) {
  const int64_t value = values.begin()->second;
  return known.compiled->program.acceptsBetween && known.least <= value && value <= known.most;
}

void PlanCache::forgetLocked(const std::vector<Agreement::Shapes>& evicted) {
  for (const Agreement::Shapes& shapes : evicted) {
    const auto isOfThese = [&](const PlanPtr& p) {
      return p->globalSizes() == shapes.sizes && p->host().deviceId.kind == shapes.device;
    };
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
  noteUseLocked(*plan);
  steady_.store(nullptr, std::memory_order_relaxed);
}

void PlanCache::noteUseLocked(const Plan& plan) {
  if (plan.values().empty()) {
    return;
  }
  const int64_t value = plan.values().begin()->second;
  const auto known = std::ranges::find(classes_, plan.compiled(), &KnownClass::compiled);
  if (known == classes_.end()) {
    classes_.push_front({plan.compiled(), plan.facts(), value, value});
  } else {
    classes_.splice(classes_.begin(), classes_, known);
    known->least = std::min(known->least, value);
    known->most = std::max(known->most, value);
  }
  if (classes_.size() > most_) {
    classes_.pop_back();
  }
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
    holds = false;  // get() throws it again, where peers can be told
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
