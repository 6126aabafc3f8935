#include "exec/fusion_executor_cache.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/environment.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/ranges.h"
#include "device/device.h"
#include "device/open.h"
#include "exec/agreement.h"
#include "exec/arguments.h"
#include "exec/compile.h"
#include "exec/explain.h"
#include "exec/overlaps.h"
#include "exec/plan_cache.h"
#include "exec/refused_position.h"
#include "exec/symbolic_costs.h"
#include "exec/symbolic_program.h"
#include "exec/trace.h"
#include "host/executor.h"
#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"
#include "multidevice/transport/communicator.h"
#include "preseg_passes/specialize.h"

namespace meshfuse {

namespace {

StepTime timeOf(const StepRecord& record, const ProgramSizes& sizes) {
  const auto bytesOf = [&](int64_t tensor) { return sizes.tensors[tensor].bytes; };
  return {.name = record.step->name,
          .kind = std::string(name(record.step->kind)),
          .seconds = record.seconds(),
          .bytesRead = sumOf(record.step->reads, bytesOf),
          .bytesWritten = sumOf(record.step->writes, bytesOf),
          .bytesReceived = record.bytesReceived};
}

Verify verifyFromEnvironment() {
  const char* text = std::getenv("MESHFUSE_VERIFY");
  std::string_view value = text == nullptr ? "off" : text;
  check(value == "off" || value == "first" || value == "always",
        "[run] MESHFUSE_VERIFY is \"{}\", expected off, first or always", value);
  return value == "first" ? Verify::First : value == "always" ? Verify::Always : Verify::Off;
}

DataType typeOf(const HostProgram& host, int64_t output) { return host.tensors[host.outputs[output]].dtype; }

const TensorSizes& sizesOf(const Plan& plan, int64_t output) {
  return plan.sizes()->tensors[plan.host().outputs[output]];
}

// The stride of a dim of one element does not matter.
bool hasPlannedStrides(const TensorSizes& plan, const Tensor& tensor) {
  return areEqual(plan.strides, tensor.strides()) || contains(plan.sizes, 0) ||
         std::ranges::all_of(indices(plan.sizes),
                             [&](int64_t d) { return plan.sizes[d] == 1 || plan.strides[d] == tensor.strides()[d]; });
}

// Other strides than planned are allowed if the output has no memory order: the result is then computed in other memory and copied.
void checkLayout(const Plan& plan, int64_t output, const Tensor& out) {
  const HostProgram& host = plan.host();
  const TensorView* tv = host.fusion->outputs()[output]->asTensor();
  const std::vector<int64_t> order = tv->memoryOrder();
  check(!tv->hasAllocation() || liesInOrder(out.sizes(), out.strides(), order),
        "[run] {} has the memory order [{}] with strides [{}], got a tensor with strides [{}]; allocate it "
        "in that order, or set no memory order for the output",
        outputText(*host.fusion, output), fmt::join(order, ", "), fmt::join(sizesOf(plan, output).strides, ", "),
        fmt::join(out.strides(), ", "));
  check(out.isContiguous() || !repeatsElements(out),
        "[run] some elements of the tensor for {} share memory; pass a tensor without repeated elements",
        outputText(*host.fusion, output));
}

// UserError unless a tensor can take output number `output`; false if its strides differ from the plan's.
bool isAsPlanned(const Plan& plan, int64_t output, const Tensor& out) {
  const HostProgram& host = plan.host();
  const TensorSizes& planned = sizesOf(plan, output);
  const DataType dtype = typeOf(host, output);
  if (!out.defined() || out.dtype() != dtype || !areEqual(planned.sizes, out.sizes())) {
    // without its elements, which may be on another device and not yet written
    const std::string got =
        out.defined() ? fmt::format("{}[{}]", name(out.dtype()), fmt::join(out.sizes(), ", ")) : "an undefined tensor";
    throwUserError(
        fmt::format("[run] {} has type {} and sizes [{}], got {} for it; pass a tensor of this type and these sizes",
                    outputText(*host.fusion, output), name(dtype), fmt::join(planned.sizes, ", "), got));
  }
  if (out.device() != host.deviceId) [[unlikely]] {
    throwUserError(
        fmt::format("[run] the program runs on {}, the tensor for {} is on {}; pass one that is made on the device of "
                    "the inputs, see Tensor::empty",
                    host.deviceId.toString(), outputText(*host.fusion, output), out.device().toString()));
  }
  const bool same = hasPlannedStrides(planned, out);
  if (!same) {
    checkLayout(plan, output, out);
  }
  return same;
}

// Whether the `bytes` bytes of a tensor overlap the memory of an input.
bool overlapsInput(std::span<const Argument> inputs, std::span<const ArgumentFacts> facts, const Tensor& out,
                   int64_t bytes) {
  const auto begin = std::bit_cast<int64_t>(out.data());
  return std::ranges::any_of(indices(inputs), [&](int64_t i) {
    const Tensor* in = std::get_if<Tensor>(&inputs[i]);
    if (in == nullptr) {
      return false;
    }
    const auto other = std::bit_cast<int64_t>(in->data());
    return other < begin + bytes && begin < other + facts[i].extent;
  });
}

Tensor makeShard(Communicator& communicator, const Plan& plan, int64_t output, std::span<const Argument> inputs) {
  const HostProgram& host = plan.host();
  if (host.aliasOf[output]) {
    return std::get<Tensor>(inputs[*host.aliasOf[output]]);
  }
  const TensorSizes& t = sizesOf(plan, output);
  const DataType dtype = typeOf(host, output);
  if (!plan.outputCommunicates(output) || !host.device->isHostMemory()) {
    Tensor dense = Tensor::empty(t.sizes, dtype, host.device->id());
    return std::ranges::equal(t.strides, dense.strides()) ? dense : dense.asStrided(t.sizes, t.strides);
  }
  std::shared_ptr<void> memory = communicator.allocate(t.bytes);
  return Tensor::wrap(memory.get(), t.sizes, t.strides, dtype, memory);
}

std::vector<Tensor> makeOutputs(Communicator& communicator, const Plan& plan, std::span<const Argument> inputs) {
  std::vector<Tensor> outputs;
  sayingMemory(plan.host(), *plan.sizes(), [&] {
    for (const int64_t i : indices(plan.host().outputs)) {
      outputs.push_back(makeShard(communicator, plan, i, inputs));
      if (!plan.unevenGlobalShape(i).empty()) {
        outputs.back() = outputs.back().withGlobalShape(plan.unevenGlobalShape(i));
      }
    }
  });
  return outputs;
}

std::string freedMemoryIn(const Fusion& fusion, std::span<const Argument> inputs, const Agreement::Call& call) {
  std::string freed;
  call.beforeAgreement({fusion, inputs}, [&] { freed = freedMemoryOf(fusion, inputs); });
  return freed;
}

std::shared_ptr<Communicator> worldOf(const ExecutorOptions& options) {
  return options.communicator != nullptr ? std::shared_ptr<Communicator>(std::shared_ptr<void>(), options.communicator)
                                         : sharedDefaultWorld();
}

}  // namespace

struct FusionExecutorCache::State {
  State(const Fusion& fusion, const ExecutorOptions& options, std::shared_ptr<Communicator> world,
        const DeviceOptions& ofDevice)
      : communicator(std::move(world)),
        ofCpu(ofDevice),
        agreement(*communicator, {.maxPlans = mostPlans(options), .sharesPlans = options.sharePlans}),
        plans(fusion, *communicator, mostPlans(options), options.sharePlans,
              [&fusion, this, passes = options.passes](std::span<const Argument> inputs, const Agreement::Call& call,
                                                       const ProgramChoice& choice) {
                std::shared_ptr<Device> device;
                call.beforeAgreement({fusion, inputs}, choice, [&] { device = openedFor(inputs); });
                return compile(fusion, inputs, call, device, passes, choice);
              }) {}

  std::shared_ptr<Device> openedFor(std::span<const Argument> inputs) {
    const DeviceId id = deviceOf(inputs);
    if (id != DeviceId::cpu()) {
      return openDevice(id);
    }
    const std::lock_guard lock(mutex);
    if (cpu == nullptr) {
      cpu = openDevice(id, ofCpu);
    }
    return cpu;
  }

  static size_t mostPlans(const ExecutorOptions& options) { return std::max<size_t>(1, options.maxPlans); }

  std::shared_ptr<Plan> lastPlan() const {
    std::shared_ptr<Plan> plan = plans.last();
    check(plan != nullptr, "[run] there is no plan before the first call; call the fusion first");
    return plan;
  }

  std::shared_ptr<Communicator> communicator;  // the caller's, or one that lives as long as the cache
  const DeviceOptions ofCpu;
  std::mutex mutex;             // of `cpu`
  std::shared_ptr<Device> cpu;  // opened when it is needed first
  Agreement agreement;
  PlanCache plans;
  std::atomic<int64_t> skip{-1};
  CollectivesRun collectives = CollectivesRun::InFiber;
  Trace* trace = nullptr;
  const std::shared_ptr<LateFailure> late = std::make_shared<LateFailure>();
};

FusionExecutorCache::FusionExecutorCache(std::unique_ptr<Fusion> fusion, ExecutorOptions options)
    : fusion_(std::move(fusion)), verify_(options.verify ? *options.verify : verifyFromEnvironment()) {
  check(fusion_ != nullptr, "[run] the executor cache got no fusion; pass one");
  const std::shared_ptr<Communicator> world = worldOf(options);
  openAxes_ = openAxes(*fusion_);
  if (!openAxes_.empty()) {
    fusion_ = SymbolicProgram(std::move(fusion_)).forRanks(world->size(), options.meshSizes)->clone();
  }
  start(options, world);
}

FusionExecutorCache::FusionExecutorCache(SymbolicProgram& program, ExecutorOptions options)
    : verify_(options.verify ? *options.verify : verifyFromEnvironment()) {
  const std::shared_ptr<Communicator> world = worldOf(options);
  openAxes_ = openAxes(program.propagated());
  fusion_ = program.forRanks(world->size(), options.meshSizes)->clone();
  start(options, world);
}

void FusionExecutorCache::start(const ExecutorOptions& options, const std::shared_ptr<Communicator>& world) {
  check(options.threads >= 0 && options.threads <= kMostThreads, "[run] got {} threads; expected 0 (the default) to {}",
        options.threads, kMostThreads);
  const double cores = world->coreShare();
  const int64_t asked = options.threads > 0
                            ? options.threads
                            : environmentNumber("MESHFUSE_THREADS", 1, kMostThreads, "a number of threads").value_or(0);
  const int64_t threads = asked > 0 ? asked : std::max<int64_t>(1, static_cast<int64_t>(cores));
  const auto used = static_cast<double>(threads);
  state_ = std::make_unique<State>(*fusion_, options, world, DeviceOptions{.threads = threads, .spin = used <= cores});
  state_->collectives = used < cores || world->sparesProcessor() ? CollectivesRun::OnThreads : CollectivesRun::InFiber;
  state_->trace = options.trace != nullptr ? options.trace : traceOfEnvironment(world->rank());
}

FusionExecutorCache::~FusionExecutorCache() = default;

void FusionExecutorCache::execute(Plan& plan, Binding& binding, std::span<const Argument> inputs,
                                  std::span<Tensor> outputs, const Way& way) {
  if (state_->trace == nullptr) [[likely]] {
    runSteps(plan, binding, inputs, outputs, way);
    return;
  }
  TracedCall traced(*state_->trace, plan.host());
  runSteps(plan, binding, inputs, outputs, {.profile = &traced.records(), .order = way.order});
  if (way.profile != nullptr) {
    *way.profile = traced.records();
  }
}

void FusionExecutorCache::runSteps(Plan& plan, Binding& binding, std::span<const Argument> inputs,
                                   std::span<Tensor> outputs, const Way& way) {
  const bool verify = verify_ == Verify::Always || (verify_ == Verify::First && !plan.verified);
  const bool mayFailLate = binding.mayFailLate();
  try {
    binding.run(*state_->communicator, inputs, outputs,
                {.verify = verify,
                 .profile = way.profile,
                 .skipStep = state_->skip,
                 .collectives = state_->collectives,
                 .order = way.order});
  } catch (const RefusedIndexError& e) {
    throw withPosition(e, *plan.ofShape(), mayFailLate ? nullptr : &binding, inputs);
  }
  if (verify) {
    plan.verified = true;
  }
}

std::vector<Tensor> FusionExecutorCache::runFusionWithInputs(const std::vector<Argument>& inputs) {
  return runTimed(inputs, nullptr);
}

std::vector<Tensor> FusionExecutorCache::run(const NamedArguments& inputs) {
  std::vector<Argument> ordered;
  try {
    ordered = inOrder(*fusion_, inputs);
  } catch (...) {  // the peers are in this call
    state_->agreement.call().beforeAgreement({*fusion_, {}}, [] { throw; });
  }
  return runFusionWithInputs(ordered);
}

template <class Body>
void FusionExecutorCache::checkCall(Binding& binding, const Body& body) {
  try {
    body();
  } catch (const UserError& why) {
    binding.refuse(*state_->communicator, why);
    throw;
  }
}

std::vector<Tensor> FusionExecutorCache::runTimed(std::span<const Argument> inputs, Profile* profile) {
  const Agreement::Call call = state_->agreement.call();
  const std::string freed = areBorrowed(inputs) ? freedMemoryIn(*fusion_, inputs, call) : std::string();
  PlanCache::Use use(state_->plans, inputs, call);
  Plan& plan = use.plan();
  std::vector<Tensor> outputs;
  std::vector<StepRecord> records;
  const auto begin = std::chrono::steady_clock::now();
  call.afterAgreement(plan.agreed(), [&] {
    checkCall(use.binding(), [&] {
      check(freed.empty(), "{}", freed);
      if (plan.writesInputs()) {
        (void)checkOverlaps(plan.host().aliasOf, inputs, {});
      }
    });
    outputs = makeOutputs(*state_->communicator, plan, inputs);
    execute(plan, use.binding(), inputs, outputs, {.profile = profile != nullptr ? &records : nullptr});
  });
  if (profile != nullptr) {
    profile->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    profile->steps = mapped(records, [&](const StepRecord& r) { return timeOf(r, use.binding().sizes()); });
  }
  return outputs;
}

void FusionExecutorCache::run(std::span<const Argument> inputs, std::span<Tensor> outputs) {
  runOn(inputs, outputs, nullptr);
}

void FusionExecutorCache::run(std::span<const Argument> inputs, std::span<Tensor> outputs, GpuStream stream) {
  const StreamOrder order{stream, state_->late};
  runOn(inputs, outputs, &order);
}

void FusionExecutorCache::wait() {
  state_->plans.waitForIdle();
  state_->late->rethrow();
}

void FusionExecutorCache::runOn(std::span<const Argument> inputs, std::span<Tensor> outputs, const StreamOrder* order) {
  const Agreement::Call call = state_->agreement.call();
  const std::string freed = areBorrowed(inputs) ? freedMemoryIn(*fusion_, inputs, call) : std::string();
  PlanCache::Use use(state_->plans, inputs, call);
  call.afterAgreement(use.plan().agreed(), [&] {
    if (order != nullptr) {
      order->late->rethrow();
    }
    checkCall(use.binding(), [&] { check(freed.empty(), "{}", freed); });
    runInto(use.plan(), use.binding(), inputs, outputs, order);
  });
}

void FusionExecutorCache::runInto(Plan& plan, Binding& binding, std::span<const Argument> inputs,
                                  std::span<Tensor> outputs, const StreamOrder* order) {
  const HostProgram& host = plan.host();
  bool direct = true;
  checkCall(binding, [&] {
    check(outputs.size() == host.outputs.size(),
          "[run] the fusion has {} outputs, got {} tensors for them; give one for each output, in order",
          host.outputs.size(), outputs.size());
    for (int64_t i = 0; i < std::ssize(outputs); i++) {
      if (!host.aliasOf[i]) {
        if (isBorrowed(outputs[i])) {
          checkBorrowedMemory(outputs[i], [&] { return outputText(*fusion_, i); });
        }
        direct = isAsPlanned(plan, i, outputs[i]) && alignmentOf(outputs[i].data()) == 64 && direct;
      }
    }
    if (plan.writesInputs() || outputs.size() != 1) {
      direct = checkOverlaps(host.aliasOf, inputs, outputs) && direct;
    } else {
      direct = direct && !overlapsInput(inputs, plan.facts(), outputs[0], sizesOf(plan, 0).bytes);
    }
  });
  if (direct) {
    return execute(plan, binding, inputs, outputs, {.order = order});
  }
  std::vector<Tensor> own = makeOutputs(*state_->communicator, plan, inputs);
  execute(plan, binding, inputs, own, {.order = order});
  for (int64_t i = 0; i < std::ssize(outputs); i++) {
    if (!host.aliasOf[i]) {
      binding.copy(outputs[i], own[i], order);
    }
  }
}

void FusionExecutorCache::run(std::span<const Tensor> inputs, std::span<Tensor> outputs) {
  thread_local std::vector<Argument> kept;  // so that later calls allocate nothing
  std::vector<Argument> arguments = std::move(kept);
  arguments.assign(inputs.begin(), inputs.end());
  run(std::span<const Argument>(arguments), outputs);
  std::ranges::fill(arguments, Tensor());  // releases the tensors
  kept = std::move(arguments);
}

std::shared_ptr<const HostProgram> FusionExecutorCache::hostProgram() const {
  return state_->lastPlan()->ofShape()->host;
}

std::vector<CommRecord> FusionExecutorCache::commSteps() const {
  std::shared_ptr<const HostProgram> host = hostProgram();
  std::vector<CommRecord> records;
  for (const int64_t i : indices(host->steps)) {
    const Step& s = host->steps[i];
    if (s.kind == HostStepKind::Communicate) {
      records.push_back({s.comm.name(), s.comm.team.ranks, s.name.substr(s.name.find(' ') + 1),
                         host->sizes().steps[i].comm.bytesReceived, s.comm.axes});
    }
  }
  return records;
}

std::shared_ptr<const Fusion> FusionExecutorCache::planned() const {
  return state_->lastPlan()->ofShape()->program.planned.fusion();
}

std::string FusionExecutorCache::planText() const { return planned()->toString(); }

std::string FusionExecutorCache::outputSharding(int64_t output) const {
  std::shared_ptr<const Fusion> program = planned();
  const std::vector<Val*>& outputs = program->outputs();
  check(output >= 0 && output < std::ssize(outputs), "[run] got output index {}, expected 0 to {}", output,
        std::ssize(outputs) - 1);
  return shardState(outputs[output]->asTensor()).toString();
}

Explanation FusionExecutorCache::explain() const {
  return meshfuse::explain(*state_->lastPlan()->ofShape(), state_->communicator->rank());
}

SymbolicCosts FusionExecutorCache::costs() const { return symbolicCosts(*state_->lastPlan()->ofShape(), openAxes_); }

Profile FusionExecutorCache::profile(const std::vector<Argument>& inputs, int64_t calls) {
  check(calls >= 1, "[profile] got {} calls, expected 1 or more", calls);
  Profile fastest{.rank = state_->communicator->rank()};
  (void)runTimed(inputs, &fastest);
  for (int64_t call = 1; call < calls; call++) {
    Profile again;
    (void)runTimed(inputs, &again);
    fastest.seconds = std::min(fastest.seconds, again.seconds);
    for (const int64_t i : indices(fastest.steps)) {
      fastest.steps[i].seconds = std::min(fastest.steps[i].seconds, again.steps[i].seconds);
    }
  }
  return fastest;
}

std::string FusionExecutorCache::missReason() const { return state_->plans.missReason(); }

int64_t FusionExecutorCache::plansCompiled() const { return state_->plans.compiled(); }

void FusionExecutorCache::skipCommunication(int64_t step) {
  if (step < 0) {
    state_->skip = -1;
    return;
  }
  const std::shared_ptr<const HostProgram> host = hostProgram();
  const std::vector<int64_t> communications =
      filtered(indices(host->steps), [&](int64_t i) { return host->steps[i].kind == HostStepKind::Communicate; });
  check(step < std::ssize(communications),
        "[run] got communication step {}, expected 0 to {}, or a negative number to skip none", step,
        std::ssize(communications) - 1);
  state_->skip = communications[step];
}

}  // namespace meshfuse
