#include "exec/fusion_executor_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <list>
#include <string_view>

#include "base/error.h"
#include "base/thread_pool.h"
#include "exec/arguments.h"
#include "exec/compile.h"
#include "exec/explain.h"
#include "exec/overlaps.h"
#include "host/executor.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/transport/communicator.h"

namespace meshfuse {

namespace {

Verify verifyFromEnvironment() {
  const char* text = std::getenv("MESHFUSE_VERIFY");
  std::string_view value = text == nullptr ? "off" : text;
  check(value == "off" || value == "first" || value == "always",
        "[run] MESHFUSE_VERIFY is \"{}\", expected off, first or always", value);
  return value == "first" ? Verify::First : value == "always" ? Verify::Always : Verify::Off;
}

}  // namespace

// What a plan assumes of one argument; of a scalar its kind, and as `sizes` its value where shapes depend on it.
struct ArgumentFacts {
  size_t kind = 0;  // of Argument
  DataType dtype = DataType::Float;
  int alignment = 1;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;

  bool hasShapeOf(const Tensor& t) const {
    return t.dtype() == dtype && std::equal(sizes.begin(), sizes.end(), t.sizes().begin(), t.sizes().end());
  }

  bool holdFor(const Argument& scalar) const {
    return scalar.index() == kind && (sizes.empty() || std::get<int64_t>(scalar) == sizes[0]);
  }

  bool holdFor(const Tensor& t) const {
    return hasShapeOf(t) && std::equal(strides.begin(), strides.end(), t.strides().begin(), t.strides().end()) &&
           (std::bit_cast<uint64_t>(t.data()) & static_cast<uint64_t>(alignment - 1)) == 0 &&
           alignmentOf(t.data()) == alignment;
  }

  std::string differenceTo(const Tensor& t) const {
    if (t.dtype() != dtype) {
      return fmt::format("type {} instead of {}", name(t.dtype()), name(dtype));
    }
    if (!std::equal(sizes.begin(), sizes.end(), t.sizes().begin(), t.sizes().end())) {
      return fmt::format("sizes [{}] instead of [{}]", fmt::join(t.sizes(), ", "), fmt::join(sizes, ", "));
    }
    if (!std::equal(strides.begin(), strides.end(), t.strides().begin(), t.strides().end())) {
      return fmt::format("strides [{}] instead of [{}]", fmt::join(t.strides(), ", "), fmt::join(strides, ", "));
    }
    return fmt::format("alignment {} instead of {}", alignmentOf(t.data()), alignment);
  }
};

// Kinds, types and sizes are those of `facts`.
static bool haveShapesOf(const std::vector<ArgumentFacts>& facts, std::span<const Argument> inputs) {
  return std::equal(facts.begin(), facts.end(), inputs.begin(), inputs.end(),
                    [](const ArgumentFacts& f, const Argument& a) {
                      const Tensor* t = std::get_if<Tensor>(&a);
                      return t == nullptr ? f.holdFor(a) : f.kind == a.index() && f.hasShapeOf(*t);
                    });
}

static bool haveSameShapes(const std::vector<ArgumentFacts>& a, const std::vector<ArgumentFacts>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ArgumentFacts& x, const ArgumentFacts& y) {
    return x.kind == y.kind && x.dtype == y.dtype && x.sizes == y.sizes;
  });
}

struct FusionExecutorCache::Plan {
  std::vector<ArgumentFacts> facts;  // one an input; of scalars empty
  CompiledProgram compiled;
  // Bindings not in use: one where a single caller finds it without a lock, the others behind one.
  std::atomic<Binding*> first{nullptr};
  std::mutex mutex;
  std::vector<std::unique_ptr<Binding>> idle;
  std::vector<bool> outputCommunicates;
  bool writesInputs = false;
  std::atomic<bool> verified{false};

  ~Plan() { delete first.load(); }

  std::unique_ptr<Binding> take() {
    if (Binding* b = first.exchange(nullptr, std::memory_order_acquire)) {
      return std::unique_ptr<Binding>(b);
    }
    std::lock_guard lock(mutex);
    if (idle.empty()) {
      return nullptr;
    }
    std::unique_ptr<Binding> binding = std::move(idle.back());
    idle.pop_back();
    return binding;
  }

  void giveBack(std::unique_ptr<Binding> binding) {
    Binding* none = nullptr;
    if (first.compare_exchange_strong(none, binding.get(), std::memory_order_release)) {
      (void)binding.release();
      return;
    }
    std::lock_guard lock(mutex);
    idle.push_back(std::move(binding));
  }

  // Kinds of scalars are looked at as well: what fits a plan needs no other check.
  bool holdsFor(std::span<const Argument> inputs) const {
    if (inputs.size() != facts.size()) {
      return false;
    }
    for (size_t i = 0; i < inputs.size(); i++) {
      const Tensor* t = std::get_if<Tensor>(&inputs[i]);
      if (t == nullptr ? !facts[i].holdFor(inputs[i]) : facts[i].kind != 0 || !facts[i].holdFor(*t)) {
        return false;
      }
    }
    return true;
  }
};

struct FusionExecutorCache::State {
  Communicator* communicator = nullptr;
  std::unique_ptr<ThreadPool> pool;
  mutable std::mutex mutex;                // plans and the fields below
  std::mutex running;                      // runs that communicate, one at a time
  std::list<std::shared_ptr<Plan>> plans;  // most recently used first
  std::shared_ptr<Plan> last;
  // Shapes that the ranks have agreed on, most recently used first. Strides and alignments may differ from rank to rank and
  // from call to call, so whether to meet the peers must not depend on them: ranks that make the same calls have the same list.
  std::list<std::vector<ArgumentFacts>> agreed;
  std::string missReason;
  int64_t compiled = 0;
  int64_t calls = 0;
  std::atomic<int64_t> skip{-1};
  std::vector<Argument> arguments;  // of the span-of-tensors call, reused

  // True if the ranks have agreed on a plan for shapes like these, which are then the most recently used.
  bool haveAgreed(std::span<const Argument> inputs) {
    for (auto it = agreed.begin(); it != agreed.end(); ++it) {
      if (haveShapesOf(*it, inputs)) {
        agreed.splice(agreed.begin(), agreed, it);
        return true;
      }
    }
    return false;
  }

  // A plan is kept; the shapes that are forgotten for it take their plans along, as the ranks will agree on them anew.
  void keep(const std::shared_ptr<Plan>& plan, std::span<const Argument> inputs, size_t most) {
    plans.push_front(plan);
    if (!haveAgreed(inputs)) {
      agreed.push_front(plan->facts);
      if (agreed.size() > most) {
        std::erase_if(plans, [&](const auto& p) { return haveSameShapes(p->facts, agreed.back()); });
        agreed.pop_back();
      }
    }
    if (plans.size() > most) {
      plans.pop_back();
    }
    last = plan;
  }
};

FusionExecutorCache::FusionExecutorCache(std::unique_ptr<Fusion> fusion, ExecutorOptions options)
    : fusion_(std::move(fusion)),
      options_(options),
      verify_(options.verify.value_or(Verify::Off)),
      state_(std::make_unique<State>()) {
  check(fusion_ != nullptr, "[run] the executor cache got no fusion");
  if (!options.verify) {
    verify_ = verifyFromEnvironment();
  }
  state_->communicator = options.communicator != nullptr ? options.communicator : &defaultWorld();
  int ranks = state_->communicator->size();
  int cores = availableCores();
  int threads = options.threads > 0 ? options.threads : std::max(1, cores / ranks);
  state_->pool = std::make_unique<ThreadPool>(ThreadPoolOptions{.threads = threads, .spin = threads * ranks <= cores});
}

FusionExecutorCache::~FusionExecutorCache() = default;

std::shared_ptr<FusionExecutorCache::Plan> FusionExecutorCache::find(std::span<const Argument> inputs) {
  std::lock_guard lock(state_->mutex);
  state_->calls++;
  state_->missReason.clear();
  if (state_->last != nullptr && state_->last->holdsFor(inputs)) {
    return state_->last;
  }
  for (auto it = state_->plans.begin(); it != state_->plans.end(); ++it) {
    if ((*it)->holdsFor(inputs)) {
      state_->plans.splice(state_->plans.begin(), state_->plans, it);
      (void)state_->haveAgreed(inputs);
      state_->last = state_->plans.front();
      return state_->last;
    }
  }
  return compileFor(inputs);
}

std::shared_ptr<FusionExecutorCache::Plan> FusionExecutorCache::compileFor(std::span<const Argument> inputs) {
  State& s = *state_;
  s.missReason = s.last == nullptr ? "the first call" : "";
  for (size_t i = 0; s.last != nullptr && i < inputs.size() && s.missReason.empty(); i++) {
    const Tensor* t = std::get_if<Tensor>(&inputs[i]);
    if (i >= s.last->facts.size() || s.last->facts[i].kind != inputs[i].index()) {
      s.missReason = fmt::format("input {} is an argument of another kind", i);
    } else if (t != nullptr && !s.last->facts[i].holdFor(*t)) {
      s.missReason = fmt::format("input {} has {}", i, s.last->facts[i].differenceTo(*t));
    } else if (t == nullptr && !s.last->facts[i].holdFor(inputs[i])) {
      s.missReason =
          fmt::format("input {} is {} instead of {}", i, std::get<int64_t>(inputs[i]), s.last->facts[i].sizes[0]);
    }
  }
  if (std::getenv("MESHFUSE_PRINT_MISSES") != nullptr) {
    fmt::print(stderr, "[meshfuse] compiling: {}\n", s.missReason);
  }
  auto plan = std::make_shared<Plan>();
  const std::vector<bool> givesShapes = shapeScalars(*fusion_);
  for (const Argument& a : inputs) {
    plan->facts.emplace_back().kind = a.index();
    if (const int64_t* value = std::get_if<int64_t>(&a);
        value != nullptr && plan->facts.size() <= givesShapes.size() && givesShapes[plan->facts.size() - 1]) {
      plan->facts.back().sizes = {*value};
    }
    if (const Tensor* t = std::get_if<Tensor>(&a)) {
      plan->facts.back() = {a.index(),
                            t->dtype(),
                            alignmentOf(t->data()),
                            {t->sizes().begin(), t->sizes().end()},
                            {t->strides().begin(), t->strides().end()}};
    }
  }
  plan->compiled = compile(*fusion_, inputs, *s.communicator,
                           {.threads = s.pool->threads(), .call = s.calls, .agreed = s.haveAgreed(inputs)});
  const HostProgram& host = *plan->compiled.host;
  plan->writesInputs =
      std::any_of(host.aliasOf.begin(), host.aliasOf.end(), [](const auto& alias) { return alias.has_value(); });
  plan->outputCommunicates.assign(host.outputs.size(), false);
  for (const Step& step : host.steps) {
    if (step.kind != HostStepKind::Communicate) {
      continue;
    }
    for (const auto* list : {&step.reads, &step.writes}) {
      for (int t : *list) {
        const TensorPlan& p = host.tensors[static_cast<size_t>(t)];
        if (p.place == Place::Output) {
          plan->outputCommunicates[static_cast<size_t>(p.index)] = true;
        }
      }
    }
  }
  s.compiled++;
  s.keep(plan, inputs, std::max<size_t>(1, options_.maxPlans));
  return plan;
}

Tensor FusionExecutorCache::makeOutput(const Plan& plan, size_t output, std::span<const Argument> inputs) const {
  const HostProgram& host = *plan.compiled.host;
  if (host.aliasOf[output]) {
    return std::get<Tensor>(inputs[static_cast<size_t>(*host.aliasOf[output])]);
  }
  const TensorPlan& t = host.tensors[static_cast<size_t>(host.outputs[output])];
  if (!plan.outputCommunicates[output]) {
    return Tensor::empty(t.sizes, t.dtype);
  }
  std::shared_ptr<void> memory = state_->communicator->allocate(static_cast<size_t>(t.bytes));
  return Tensor::wrap(memory.get(), t.sizes, contiguousStrides(t.sizes), t.dtype, memory);
}

void FusionExecutorCache::execute(Plan& plan, std::span<const Argument> inputs, std::span<Tensor> outputs) {
  std::unique_ptr<Binding> binding = plan.take();
  if (binding == nullptr) {
    binding = std::make_unique<Binding>(plan.compiled.host, *state_->communicator);
  }
  ExecuteOptions options;
  options.skipStep = state_->skip;
  options.verify = verify_ == Verify::Always || (verify_ == Verify::First && !plan.verified);
  binding->run(*state_->pool, *state_->communicator, inputs, outputs, options);
  plan.verified = true;
  plan.giveBack(std::move(binding));
}

// On several ranks a call is one sequence of meetings with the peers: threads take turns, and a call that fails once the ranks have
// agreed to make it tells them, for they are waiting.
class FusionExecutorCache::Turn {
 public:
  explicit Turn(Communicator& communicator) : communicator_(communicator) {
    if (communicator.size() > 1) {
      lock_ = std::unique_lock(communicator.sequence());
    }
  }
  template <class Fn>
  void afterAgreement(const Plan& plan, Fn&& body) {
    try {
      body();
    } catch (const std::exception& e) {
      if (lock_.owns_lock() && plan.compiled.host->communicates) {
        communicator_.abort(e.what());
      }
      throw;
    }
  }

 private:
  Communicator& communicator_;
  std::unique_lock<std::mutex> lock_;
};

std::vector<Tensor> FusionExecutorCache::runFusionWithInputs(const std::vector<Argument>& inputs) {
  Turn turn(*state_->communicator);
  std::shared_ptr<Plan> plan = find(inputs);
  std::vector<Tensor> outputs;
  turn.afterAgreement(*plan, [&] {
    if (plan->writesInputs) {
      (void)checkOverlaps(plan->compiled.host->aliasOf, inputs, {});
    }
    for (size_t i = 0; i < plan->compiled.host->outputs.size(); i++) {
      outputs.push_back(makeOutput(*plan, i, inputs));
    }
    execute(*plan, inputs, outputs);
  });
  return outputs;
}

void FusionExecutorCache::run(std::span<const Argument> inputs, std::span<Tensor> outputs) {
  Turn turn(*state_->communicator);
  std::shared_ptr<Plan> plan = find(inputs);
  turn.afterAgreement(*plan, [&] { runInto(*plan, inputs, outputs); });
}

void FusionExecutorCache::runInto(Plan& plan, std::span<const Argument> inputs, std::span<Tensor> outputs) {
  const HostProgram& host = *plan.compiled.host;
  check(outputs.size() == host.outputs.size(), "[run] the fusion has {} outputs, got {} tensors for them",
        host.outputs.size(), outputs.size());
  bool direct = true;
  for (size_t i = 0; i < outputs.size(); i++) {
    if (host.aliasOf[i]) {
      continue;
    }
    const TensorPlan& t = host.tensors[static_cast<size_t>(host.outputs[i])];
    const Tensor& out = outputs[i];
    bool fits = out.defined() && out.dtype() == t.dtype && std::ranges::equal(t.sizes, out.sizes());
    if (!fits) {  // a description is costly: only now
      throwUserError(fmt::format("[run] output {} has type {} and sizes [{}], got {} for it", i, name(t.dtype),
                                 fmt::join(t.sizes, ", "), out.toString()));
    }
    direct = direct && out.isContiguous() && alignmentOf(out.data()) == 64;
    check(out.isContiguous() || !repeatsElements(out), "[run] some elements of the tensor for output {} share memory",
          i);
  }
  if (plan.writesInputs || outputs.size() > 1) {
    direct = checkOverlaps(host.aliasOf, inputs, outputs) && direct;
  } else if (outputs.size() == 1) {
    for (const Argument& a : inputs) {
      const Tensor* in = std::get_if<Tensor>(&a);
      direct = direct && (in == nullptr || !extentsMeet(outputs[0], *in));
    }
  }
  if (direct) {
    execute(plan, inputs, outputs);
    return;
  }
  std::vector<Tensor> own;
  for (size_t i = 0; i < outputs.size(); i++) {
    own.push_back(makeOutput(plan, i, inputs));
  }
  execute(plan, inputs, own);
  for (size_t i = 0; i < outputs.size(); i++) {
    if (!host.aliasOf[i]) {
      outputs[i].copyFrom(own[i]);
    }
  }
}

void FusionExecutorCache::run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  std::vector<Argument> arguments;
  {
    std::lock_guard lock(state_->mutex);
    arguments.swap(state_->arguments);
  }
  arguments.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); i++) {
    arguments[i] = inputs[i];
  }
  run(std::span<const Argument>(arguments), outputs);
  const Tensor none;
  for (Argument& a : arguments) {
    std::get<Tensor>(a) = none;  // gives the tensors back, but keeps the memory of their sizes
  }
  std::lock_guard lock(state_->mutex);
  state_->arguments.swap(arguments);
}

std::shared_ptr<const HostProgram> FusionExecutorCache::hostProgram() const {
  std::lock_guard lock(state_->mutex);
  check(state_->last != nullptr, "[run] there is no plan before the first call");
  return state_->last->compiled.host;
}

std::vector<CommRecord> FusionExecutorCache::commSteps() const {
  std::shared_ptr<const HostProgram> host = hostProgram();
  std::vector<CommRecord> records;
  for (const Step& s : host->steps) {
    if (s.kind == HostStepKind::Communicate) {
      size_t space = s.name.find(' ');
      records.push_back({s.name.substr(0, space), s.comm.team.ranks, s.name.substr(space + 1), s.comm.bytesReceived});
    }
  }
  return records;
}

std::shared_ptr<const Fusion> FusionExecutorCache::planned() const {
  std::lock_guard lock(state_->mutex);
  check(state_->last != nullptr, "[run] there is no plan before the first call");
  return state_->last->compiled.program.planned;
}

std::string FusionExecutorCache::planText() const { return planned()->toString(); }

std::string FusionExecutorCache::outputSharding(int output) const {
  std::shared_ptr<const Fusion> program = planned();
  const std::vector<Val*>& outputs = program->outputs();
  check(output >= 0 && static_cast<size_t>(output) < outputs.size(), "[run] got output {}, the fusion has {}", output,
        outputs.size());
  return shardState(outputs[static_cast<size_t>(output)]->asTensor()).toString();
}

Explanation FusionExecutorCache::explain() const {
  std::lock_guard lock(state_->mutex);
  check(state_->last != nullptr, "[run] there is no plan before the first call");
  return meshfuse::explain(state_->last->compiled, state_->communicator->rank());
}

std::vector<StepTime> FusionExecutorCache::profile(const std::vector<Argument>& inputs) {
  Turn turn(*state_->communicator);
  std::shared_ptr<Plan> plan = find(inputs);
  if (plan->writesInputs) {
    (void)checkOverlaps(plan->compiled.host->aliasOf, inputs, {});
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < plan->compiled.host->outputs.size(); i++) {
    outputs.push_back(makeOutput(*plan, i, inputs));
  }
  std::vector<StepRecord> records;
  ExecuteOptions options;
  options.profile = &records;
  Binding binding(plan->compiled.host, *state_->communicator);
  binding.run(*state_->pool, *state_->communicator, inputs, outputs, options);
  std::vector<StepTime> times;
  for (const StepRecord& r : records) {
    times.push_back({r.step->name, r.step->kind == HostStepKind::Communicate, r.seconds});
  }
  return times;
}

std::string FusionExecutorCache::missReason() const {
  std::lock_guard lock(state_->mutex);
  return state_->missReason;
}

int64_t FusionExecutorCache::plansCompiled() const {
  std::lock_guard lock(state_->mutex);
  return state_->compiled;
}

void FusionExecutorCache::skipCommunication(int step) {
  int64_t at = -1;
  if (step >= 0) {
    std::shared_ptr<const HostProgram> host = hostProgram();
    int seen = 0;
    for (size_t i = 0; i < host->steps.size(); i++) {
      if (host->steps[i].kind == HostStepKind::Communicate && seen++ == step) {
        at = static_cast<int64_t>(i);
      }
    }
    check(at >= 0, "[run] the plan has {} communication steps, got {}", seen, step);
  }
  state_->skip = at;
}

}  // namespace meshfuse
