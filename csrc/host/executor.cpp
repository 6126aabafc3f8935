#include "host/executor.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "base/error.h"
#include "base/fiber.h"
#include "base/ranges.h"
#include "base/refused_index.h"
#include "device/device_failure.h"
#include "host/accesses.h"
#include "host/arena_pool.h"
#include "host/arena_registration.h"
#include "host/reference.h"
#include "interpret/bounds.h"
#include "interpret/interpret.h"
#include "ir/fusion.h"
#include "multidevice/transport/call.h"

namespace meshfuse {

namespace {

// Points of a timer
int64_t beginOf(int64_t step) { return 2 * step; }
int64_t endOf(int64_t step) { return 2 * step + 1; }

}  // namespace

void LateFailure::keep(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) {
    failure_ = std::move(failure);
    isKept_ = true;
  }
}

void LateFailure::rethrow() {
  if (!isKept_.load(std::memory_order_acquire)) [[likely]] {
    return;
  }
  const std::lock_guard lock(mutex_);
  isKept_ = false;
  if (failure_ != nullptr) {
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

Binding::Binding(std::shared_ptr<const HostProgram> program, Communicator& communicator,
                 std::shared_ptr<const ProgramSizes> sizes, ArenaPool* arenas)
    : program_(std::move(program)),
      sizes_(std::move(sizes)),
      direct_(communicator, *program_, true),
      queue_(direct_.queue()),
      inFlight_(program_->steps.size()),
      lastPosted_(program_->teams.size(), -1),
      fiber_(std::make_unique<Fiber>([this] { runPending(); })) {
  const HostProgram& p = *program_;
  isAsynchronous_ = direct_.isAsynchronous();
  failsTogether_ = p.overlap.allowed || isAsynchronous_;
  endsTogether_ = p.overlap.endsTogether && failsTogether_;
  openLanes(communicator);
  if (queue_.canCapture()) {
    replays_ = Replays(replaysOf(p), p.steps.size());
    if (isAsynchronous_) {
      joint_ = Replays(jointReplaysOf(p), p.steps.size());
    }
  }
  sayingMemory(p, *sizes_, [&] {
    // An arena that passes to other bindings would be registered with other teams on each rank.
    const bool isRegistered = isAsynchronous_ && arenas == nullptr;
    if (sizes_->arenaBytes > 0) {
      const bool sharesArena = p.communicates && p.device->isHostMemory();
      const auto allocate = [&](int64_t bytes) {
        return sharesArena    ? communicator.allocate(bytes)
               : isRegistered ? direct_.allocateArena(bytes)
                              : p.device->allocate(bytes);
      };
      arena_ = arenas != nullptr ? arenas->take(sizes_->arenaBytes, allocate) : allocate(sizes_->arenaBytes);
    }
    if (isAsynchronous_) {
      registration_ = isRegistered ? std::make_unique<ArenaRegistration>(p, *sizes_, direct_, arena_.get())
                                   : std::make_unique<ArenaRegistration>();
    }
    if (sizes_->zeroedBytes > 0) {
      zeroed_ = p.device->allocate(sizes_->zeroedBytes);
      queue_.clear(zeroed_.get(), sizes_->zeroedBytes);
    }
    if (sizes_->scratchBytes > 0) {
      scratch_ = p.device->allocate(sizes_->scratchBytes);
    }
  });
  pointers_.resize(p.tensors.size());
  char* arena = static_cast<char*>(arena_.get());
  for (int64_t t = 0; t < std::ssize(p.tensors); t++) {
    const TensorPlan& plan = p.tensors[t];
    if (plan.place == Place::Arena) {
      pointers_[t] = arena + sizes_->tensors[t].offset;
    } else {
      (plan.place == Place::Input ? arguments_ : results_).push_back({t, plan.index});
    }
  }
  slots_.resize(p.steps.size());
  operands_.resize(p.steps.size());
  scalarOf_.resize(p.steps.size());
  pending_.reserve(p.teams.empty() ? 0 : p.steps.size() + 1);
  const auto writesArgument = [&p](const Step& s) {
    return std::ranges::any_of(s.writes, [&p](int64_t t) { return p.tensors[t].place == Place::Input; });
  };
  firstInPlace_ = std::ranges::find_if(p.steps, writesArgument) - p.steps.begin();
  for (int64_t i = 0; i < std::ssize(p.steps); i++) {
    const LaunchPlan& l = p.steps[i].launch;
    std::vector<uint64_t>& slots = slots_[i];
    operands_[i].resize(p.steps[i].operands.size());
    int64_t space = 0;
    for (int64_t t : l.tensors) {
      void* base = t >= 0 ? pointers_[t] : workspace(i, space++);
      slots.push_back(std::bit_cast<uint64_t>(base));
    }
    for (const IntExpr& e : sizes_->steps[i].launch) {
      slots.push_back(e.isConst() ? static_cast<uint64_t>(e.constValue()) : 0);
      hasRunTimeScalars_ = hasRunTimeScalars_ || !e.isConst();
    }
    slots.resize(slots.size() + l.scalars.size());
    scalarOf_[i] =
        mapped(l.scalars, [&](const Val* scalar) { return scalars_.add(*p.fusion, scalar, sizes_->values); });
    hasRunTimeScalars_ = hasRunTimeScalars_ || !l.scalars.empty();
  }
  prepareSteps();
}

// A call of the device that may wait for all its work must not stand between two collectives.
void Binding::prepareSteps() {
  int64_t checked = 0;
  for (const Step& s : program_->steps) {
    if (s.kind == HostStepKind::Copy) {
      queue_.prepareCopy(elements(s.writes[0]), elements(s.reads[0]));
    }
    checked += s.kind == HostStepKind::Launch && s.launch.checksIndices ? 1 : 0;
  }
  queue_.prepareChecks(checked);
}

Binding::Binding(const std::shared_ptr<const HostProgram>& program, Communicator& communicator,
                 const std::map<std::string, int64_t>& values)
    : Binding(program, communicator, sizesFor(*program, values)) {}

Binding::~Binding() {
  if (late_ != nullptr) {
    try {
      wait();
    } catch (const std::exception&) {
      late_->keep(std::current_exception());
    }
  }
}

void Binding::run(Communicator& communicator, std::span<const Argument> inputs, std::span<Tensor> outputs,
                  const ExecuteOptions& options) {
  if (options.profile != nullptr) {
    options.profile->clear();
  }
  if (late_ != nullptr) {
    locating([this] { queue_.poll(); });
  }
  for (const Bound& b : arguments_) {
    pointers_[b.tensor] = std::get<Tensor>(inputs[b.index]).data();
  }
  for (const Bound& b : results_) {
    pointers_[b.tensor] = outputs[b.index].data();
  }
  if (hasRunTimeScalars_) {
    bindScalars(inputs);
  }
  if (options.order != nullptr) {
    queue_.orderAfter(options.order->stream);
  }
  next_ = 0;
  const bool isPlain = !program_->overlap.allowed && !endsTogether_ && !options.verify && options.profile == nullptr;
  if (!isPlain) {
    call_ = {.communicator = &communicator, .inputs = inputs, .options = &options};
  }
  try {
    if (failsTogether_) {
      // Ranks that run other programs are noticed where they meet: calls of a lane are compared with calls of the same lane only, and those of
      // a device with none. In a fiber that is before the first step that writes an argument, the first collective that a step waits for, or
      // the end.
      meetAtBegin(communicator, inputs, options);
    }
    joinedSteps_ = 0;
    if (isAsynchronous_) {
      fork(0);  // this call's collectives follow earlier calls
    }
    if (isPlain) [[likely]] {
      while (next_ < std::ssize(program_->steps)) {
        next_ = next_ == options.skipStep ? next_ + 1
                : beginsJointPiece(next_) ? replayJointly(next_)
                                          : put(next_, direct_, inputs);
      }
      endCall(options);
      return direct_.end();
    }
    runSteps(inputs, options);
    carrier().end();
    if (endsTogether_ && refusal_ == nullptr) {
      meet(communicator, "the end of a program");
    }
  } catch (const std::exception& why) {
    if (std::exchange(isRefused_, false)) {
      throw;
    }
    const bool isOfDevice = dynamic_cast<const DeviceFailure*>(&why) != nullptr;
    placeFailure(communicator, isOfDevice);
    abandon(communicator, explained(why));
    if (options.profile != nullptr) {
      try {
        readTimes(*options.profile);
      } catch (const DeviceError&) {  // the device is gone, and the times with it
        options.profile->clear();
      }
    }
    if (isOfDevice) {  // the caller throws the error of the group, which names the rank and the step and has this text
      throwDeviceError(program_->communicates ? withHint(why.what()) : located(why.what()));
    }
    throw;
  } catch (...) {  // the thread is cancelled: a paused collective must not outlive the call
    abandon(communicator, "the thread of the call ends");
    throw;
  }
  if (options.profile != nullptr) {
    readTimes(*options.profile);
  }
  if (refusal_ != nullptr) {
    std::rethrow_exception(std::exchange(refusal_, nullptr));
  }
}

int64_t Binding::stepOfFailure() const {
  return runsPending_ ? pending_.front() : std::min(next_, std::ssize(program_->steps) - 1);
}

void Binding::placeFailure(Communicator& communicator, bool isOfDevice) const {
  const int64_t step = stepOfFailure();
  const bool isWithinSteps = failsTogether_ && !isAsynchronous_ && next_ < std::ssize(program_->steps);
  if (step >= 0 && (isOfDevice || isWithinSteps || runsPending_)) {
    communicator.setStep(step, describe(program_->steps[step]));
  }
}

std::string Binding::located(std::string_view failure) const {
  if (program_->steps.empty()) {
    return std::string(failure);
  }
  const std::string what = describe(program_->steps[stepOfFailure()]);
  return fmt::format("{}: {}",
                     program_->ranks > 1 ? describeRank(program_->rank, program_->ranks, stepOfFailure(), what)
                                         : fmt::format("[run] at step {} ({})", stepOfFailure(), what),
                     withHint(failure));
}

template <class Work>
void Binding::locating(const Work& work) const {
  try {
    work();
  } catch (const DeviceFailure& why) {
    throwDeviceError(located(why.what()));
  }
}

std::optional<Tensor> Binding::remaining(int64_t val) const {
  const HostProgram& p = *program_;
  const int64_t tensor = positionIn(mapped(p.tensors, &TensorPlan::val), val);
  const bool hasFailedWithin = next_ < std::ssize(p.steps);
  if (tensor == std::ssize(p.tensors) || !isIntact(p, *sizes_, tensor, hasFailedWithin ? next_ + 1 : next_) ||
      (hasFailedWithin && contains(p.steps[next_].writes, p.storageOf(tensor)))) {
    return std::nullopt;
  }
  return view(tensor);
}

void Binding::copy(const Tensor& to, const Tensor& from, const StreamOrder* order) {
  queue_.copyElements(to.elements(), from.elements());
  endCall({.order = order});
}

void Binding::wait() {
  try {
    locating([this] {
      carrier().finishCalls();
      queue_.wait();
    });
  } catch (const RefusedIndexError& refusal) {
    if (tell_) {
      tell_(refusal);
    }
    throw;
  }
  late_ = nullptr;
}

void Binding::finish() {
  if (&carrier() != &direct_) {
    carrier().finish();
  }
  direct_.finish();
}

void Binding::endCall(const ExecuteOptions& options) {
  if (options.order == nullptr || endsTogether_ || options.profile != nullptr) {
    finish();
    late_ = nullptr;
  } else {
    if (late_ != options.order->late) {  // else counts no reference
      late_ = options.order->late;
    }
  }
  joinForked();
  if (options.order != nullptr) {
    queue_.orderBefore(options.order->stream);
  }
}

void Binding::readTimes(std::vector<StepRecord>& records) const {
  std::erase_if(records, [](const StepRecord& r) { return r.step == nullptr; });
  if (records.empty()) {  // a call that has failed before its first step
    return;
  }
  timer_->synchronize(queue_);
  for (StepRecord& r : records) {
    const int64_t number = r.step - program_->steps.data();
    r.begin = timer_->timeOf(beginOf(number));
    r.end = timer_->timeOf(endOf(number));
  }
}

void Binding::join(Queue& from, Queue& to) {
  if (&from != &to) {
    from.record(*meeting_);
    to.waitFor(*meeting_);
  }
}

void Binding::fork(int64_t next) {
  if (next < std::ssize(program_->steps) && !beginsJointPiece(next)) {
    join(queue_, carrier().queue());
    isForked_ = true;
  }
}

void Binding::joinForked() {
  if (std::exchange(isForked_, false)) {
    join(carrier().queue(), queue_);
  }
}

void Binding::abandon(Communicator& communicator, std::string_view why) noexcept {
  refusal_ = nullptr;
  runsPending_ = false;
  if (failsTogether_) {
    communicator.abort(why);  // peers may wait in collectives, where they would not notice what this rank does next
    carrier().giveUp();
    carrier().end();
  }
  if (fiber_->isPaused()) {
    try {
      fiber_->finish();
    } catch (const std::exception&) {
      // the first failure is reported
    }
  }
  pending_.clear();
  for (const int64_t i : indices(inFlight_)) {
    try {
      waitForPosted(i);
    } catch (const std::exception&) {
      // the first failure is reported
    }
  }
  std::ranges::fill(lastPosted_, -1);
  for (Queue* const queue : {&carrier().queue(), &queue_}) {
    try {
      queue->wait();
    } catch (const std::exception&) {
      // the first failure is reported
    }
  }
}

void Binding::executeWatched(int64_t number, CommPath& path, std::span<const Argument> inputs,
                             const ExecuteOptions& options) {
  const Step& step = program_->steps[number];
  const bool compared = options.verify && step.reference && step.kind != HostStepKind::Reference;
  const std::vector<Argument> before = compared ? referenceInputs(step, inputs) : std::vector<Argument>();
  const int64_t receivedBefore = path.bytesReceived();
  if (options.profile != nullptr) {
    timer_->mark(beginOf(number), path.queue());
  }
  execute(number, path, inputs);
  if (options.profile != nullptr) {
    timer_->mark(endOf(number), path.queue());
    (*options.profile)[number] = {.step = &step, .bytesReceived = path.bytesReceived() - receivedBefore};
  }
  if (options.verify) {
    path.finish();
  }
  if (compared) {
    compareWithReference(step, before);
  }
}

void Binding::bindScalars(std::span<const Argument> inputs) {
  const HostProgram& p = *program_;
  scalars_.run(*p.fusion, inputs);
  for (int64_t i = 0; i < std::ssize(p.steps); i++) {
    const LaunchPlan& l = p.steps[i].launch;
    size_t slot = l.tensors.size();
    for (const IntExpr& e : sizes_->steps[i].launch) {
      if (!e.isConst()) {
        slots_[i][slot] = static_cast<uint64_t>(integerValue(*p.fusion, e, inputs));
      }
      slot++;
    }
    for (int64_t k = 0; k < std::ssize(l.scalars); k++) {
      slots_[i][slot++] = scalars_.bits(scalarOf_[i][k], l.scalarTypes[k]);
    }
  }
}

void Binding::execute(int64_t number, CommPath& path, std::span<const Argument> inputs) {
  const Step& step = program_->steps[number];
  switch (step.kind) {
    case HostStepKind::Launch:
      return launch(number);
    case HostStepKind::Routine: {
      std::vector<void*>& operands = operands_[number];
      for (int64_t k = 0; k < std::ssize(step.operands); k++) {
        operands[k] = pointer(step.operands[k]);
      }
      void* const space = step.workspaces.empty() ? nullptr : workspace(number, 0);
      return queue_.call(*sizes_->routines[step.routine], operands, pointer(step.writes[0]), space);
    }
    case HostStepKind::Communicate: {
      const StepSizes& sizes = sizes_->steps[number];
      const IntExpr& root = sizes.comm.root;
      return path.run({.step = step,
                       .sizes = sizes,
                       .number = number,
                       .in = pointer(step.reads[0]),
                       .out = pointer(step.writes[0]),
                       .arena = static_cast<char*>(arena_.get()),
                       .root = root.isConst() ? root.constValue() : integerValue(*program_->fusion, root, inputs)});
    }
    case HostStepKind::Copy:
      return queue_.copyElements(elements(step.writes[0]), elements(step.reads[0]));
    case HostStepKind::Reference:
      finish();
      return reference(step, referenceInputs(step, inputs));
  }
}

Launch Binding::launchOf(int64_t number) {
  const Step& step = program_->steps[number];
  const LaunchPlan& l = step.launch;
  std::vector<uint64_t>& slots = slots_[number];
  for (int64_t k = 0; k < std::ssize(l.tensors); k++) {
    if (l.tensors[k] >= 0) {
      slots[k] = std::bit_cast<uint64_t>(pointers_[l.tensors[k]]);
    }
  }
  return {.kernel = *l.kernel,
          .name = step.name,
          .slots = slots,
          .parts = sizes_->steps[number].parts,
          .scratch = scratch_.get(),
          .scratchBytes = sizes_->scratchBytes,
          .checksIndices = l.checksIndices};
}

void Binding::launch(int64_t number) { queue_.launch(launchOf(number)); }

StridedElements Binding::elements(int64_t tensor) const {
  const TensorSizes& t = sizes_->tensors[tensor];
  return {pointer(tensor), program_->tensors[tensor].dtype, t.sizes, t.strides};
}

Tensor Binding::view(int64_t tensor) const {
  const TensorSizes& t = sizes_->tensors[tensor];
  return Tensor::wrap(pointer(tensor), t.sizes, t.strides, program_->tensors[tensor].dtype, nullptr,
                      program_->device->id());
}

std::vector<Argument> Binding::referenceInputs(const Step& step, std::span<const Argument> inputs) const {
  auto arguments = mapped<Argument>(step.reads, [this](int64_t t) {
    const Tensor there = view(t);
    const std::vector<int64_t>& sizes = sizes_->tensors[t].sizes;
    Tensor copy = Tensor::empty(sizes, there.dtype(), DeviceId::cpu());  // the plan of a GPU's memory counts no copies
    copy.copyFrom(there);
    return copy;
  });
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    if (!program_->fusion->inputs()[i]->isTensor()) {
      arguments.push_back(inputs[i]);
    }
  }
  return arguments;
}

void Binding::reference(const Step& step, std::span<const Argument> inputs) {
  std::vector<Tensor> results = interpret(*referenceWith(step.reference.fusion(), sizes_->values), inputs);
  for (int64_t k = 0; k < std::ssize(results); k++) {
    view(step.writes[k]).copyFrom(results[k]);
  }
}

void Binding::compareWithReference(const Step& step, std::span<const Argument> inputs) const {
  std::vector<BoundedTensor> expected =
      interpretWithBounds(*referenceWith(step.reference.fusion(), sizes_->values), inputs);
  for (int64_t k = 0; k < std::ssize(expected); k++) {
    expected[k].uncertain = 0;  // a difference at a discontinuity is no error
    std::optional<std::string> difference = compare(view(step.writes[k]), expected[k]);
    invariant(!difference, "[verify] T{}, computed by {}, differs from the reference: {}\nkernel:\n{}",
              program_->tensors[step.writes[k]].val, step.name, difference.value_or(""), step.launch.program);
  }
}

}  // namespace meshfuse
