#include "host/executor.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "base/ranges.h"
#include "base/refused_index.h"
#include "base/thread_pool.h"
#include "host/routine.h"
#include "interpret/bounds.h"
#include "interpret/interpret.h"
#include "ir/fusion.h"
#include "jit/orc/cpu_compiler.h"

namespace meshfuse {

namespace {

constexpr int64_t kScratchStride = 4096;  // each worker's scratch starts on a page of its own

int64_t receivedBy(const Communicator& communicator) {
  return sumOf(communicator.counters().of, &TransferCounters::Entry::bytesReceived);
}

}  // namespace

Binding::Binding(std::shared_ptr<const HostProgram> program, Communicator& communicator)
    : program_(std::move(program)) {
  const HostProgram& p = *program_;
  if (p.arenaBytes > 0) {
    arena_ =
        p.communicates ? communicator.allocate(p.arenaBytes) : Tensor::empty({p.arenaBytes}, DataType::Bool).storage();
  }
  if (p.scratchBytes > 0) {
    scratchStride_ = (p.scratchBytes + kScratchStride - 1) / kScratchStride * kScratchStride;
    scratch_ = Tensor::empty({scratchStride_ * p.workers}, DataType::Bool).storage();
  }
  pointers_.resize(p.tensors.size());
  char* arena = static_cast<char*>(arena_.get());
  for (int64_t t = 0; t < std::ssize(p.tensors); t++) {
    const TensorPlan& plan = p.tensors[t];
    if (plan.place == Place::Arena) {
      pointers_[t] = arena + plan.offset;
    } else {
      (plan.place == Place::Input ? arguments_ : results_).push_back({t, plan.index});
    }
  }
  slots_.resize(p.steps.size());
  operands_.resize(p.steps.size());
  scalarOf_.resize(p.steps.size());
  for (int64_t i = 0; i < std::ssize(p.steps); i++) {
    const LaunchPlan& l = p.steps[i].launch;
    std::vector<uint64_t>& slots = slots_[i];
    operands_[i].resize(p.steps[i].operands.size());
    size_t workspace = 0;
    for (int64_t t : l.tensors) {
      void* base = t >= 0 ? pointers_[t] : arena + l.workspaces[workspace++];
      slots.push_back(std::bit_cast<uint64_t>(base));
    }
    for (const IntExpr& e : l.sizes) {
      slots.push_back(e.isConst() ? static_cast<uint64_t>(e.constValue()) : 0);
      hasRunTimeScalars_ = hasRunTimeScalars_ || !e.isConst();
    }
    slots.resize(slots.size() + l.scalars.size());
    scalarOf_[i] = mapped(l.scalars, [&](const Val* scalar) { return scalars_.add(*p.fusion, scalar); });
    hasRunTimeScalars_ = hasRunTimeScalars_ || !l.scalars.empty();
  }
}

void Binding::run(ThreadPool& pool, Communicator& communicator, std::span<const Argument> inputs,
                  std::span<Tensor> outputs, const ExecuteOptions& options) {
  for (const Bound& b : arguments_) {
    pointers_[b.tensor] = std::get<Tensor>(inputs[b.index]).data();
  }
  for (const Bound& b : results_) {
    pointers_[b.tensor] = outputs[b.index].data();
  }
  if (hasRunTimeScalars_) {
    bindScalars(inputs);
  }
  const std::vector<Step>& steps = program_->steps;
  const bool watched = options.verify || options.profile != nullptr;
  for (int64_t i = 0; i < std::ssize(steps); i++) {
    if (i == options.skipStep) {
      continue;
    }
    if (watched) {
      executeWatched(steps[i], i, pool, communicator, inputs, options);
    } else {
      execute(steps[i], i, pool, communicator, inputs);
    }
  }
}

void Binding::executeWatched(const Step& step, size_t number, ThreadPool& pool, Communicator& communicator,
                             std::span<const Argument> inputs, const ExecuteOptions& options) {
  const bool compared = options.verify && step.reference != nullptr && step.kind != HostStepKind::Reference;
  const std::vector<Argument> before = compared ? referenceInputs(step, inputs) : std::vector<Argument>();
  StepRecord record{.step = &step, .bytesReceived = -receivedBy(communicator)};
  record.begin = std::chrono::steady_clock::now();
  execute(step, number, pool, communicator, inputs);
  record.end = std::chrono::steady_clock::now();
  record.bytesReceived += receivedBy(communicator);
  if (options.profile != nullptr) {
    options.profile->push_back(record);
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
    for (const IntExpr& e : l.sizes) {
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

void Binding::execute(const Step& step, size_t number, ThreadPool& pool, Communicator& communicator,
                      std::span<const Argument> inputs) {
  switch (step.kind) {
    case HostStepKind::Launch:
      return launch(step, number, pool);
    case HostStepKind::Routine: {
      std::vector<void*>& operands = operands_[number];
      for (int64_t k = 0; k < std::ssize(step.operands); k++) {
        operands[k] = pointer(step.operands[k]);
      }
      return step.routine->run(pool, operands, pointer(step.writes[0]), workspace(step));
    }
    case HostStepKind::Communicate:
      communicator.setStep(number, step.name);
      communicator.setProgram(step.comm.program);
      communicate(step, communicator, inputs);
      communicator.setProgram(0);
      return;
    case HostStepKind::Copy:
      return copyElements(elements(step.writes[0]), elements(step.reads[0]));
    case HostStepKind::Reference:
      return reference(step, referenceInputs(step, inputs));
  }
}

void Binding::launch(const Step& step, size_t number, ThreadPool& pool) {
  const LaunchPlan& l = step.launch;
  std::vector<uint64_t>& slots = slots_[number];
  for (int64_t k = 0; k < std::ssize(l.tensors); k++) {
    if (l.tensors[k] >= 0) {
      slots[k] = std::bit_cast<uint64_t>(pointers_[l.tensors[k]]);
    }
  }
  for (int64_t k = 0; k < std::ssize(l.zeroed); k++) {
    if (l.zeroed[k] > 0) {
      std::memset(workspace(step, k), 0, l.zeroed[k]);
    }
  }
  char* scratch = static_cast<char*>(scratch_.get());
  RefusedIndex refused;
  auto run = [&](int64_t begin, int64_t end, int64_t worker) {
    void* own = scratch + worker * scratchStride_;
    if (l.checksIndices) {
      RefusedIndexScope scope(refused);
      l.kernel->run(slots.data(), begin, end, own);
    } else {
      l.kernel->run(slots.data(), begin, end, own);
    }
  };
  if (l.parts == 1) {
    run(0, 1, 0);
  } else {
    pool.run(l.parts, run);
  }
  check(!refused.any(), "[run] {}: index {} is out of range for an extent of {}; give 0 <= index < {}", step.name,
        refused.index(), refused.extent(), refused.extent());
}

void Binding::communicate(const Step& step, Communicator& communicator, std::span<const Argument> inputs) {
  const CommCall& c = step.comm;
  const void* in = pointer(step.reads[0]);
  void* out = pointer(step.writes[0]);
  const Team& team = c.team;
  if (!c.counts.empty()) {
    return communicateUneven(step, communicator, in, out);
  }
  switch (c.kind) {
    case Collective::AllGather:
      return communicator.allGather(team, in, out, c.count, c.dtype);
    case Collective::AllReduce:
      return communicator.allReduce(team, in, out, c.count, c.dtype, c.reduce);
    case Collective::ReduceScatter:
      return communicator.reduceScatter(team, in, out, c.count, c.dtype, c.reduce);
    case Collective::AllToAll:
      return communicator.allToAll(team, in, out, c.count, c.dtype);
    case Collective::Broadcast: {
      const int64_t root = c.root.isConst() ? c.root.constValue() : integerValue(*program_->fusion, c.root, inputs);
      if (team.ranks[root] == communicator.rank()) {
        std::memcpy(out, in, c.count * dataTypeSize(c.dtype));
      }
      return communicator.broadcast(team, out, c.count, c.dtype, root);
    }
    case Collective::Transfer:
      return transfer(step, communicator, in, out);
    default:
      throwInternalError(fmt::format("[run] {}: no host program has such a step", step.name));
  }
}

void Binding::transfer(const Step& step, Communicator& communicator, const void* in, void* out) {
  using enum Communicator::Transfer::Direction;
  const CommCall& c = step.comm;
  const auto placeOf = [&](const CommCall::Message& m, const void* tensor) {
    char* whole = static_cast<char*>(const_cast<void*>(tensor));
    return m.block.isOnePiece() ? whole + m.block.begin() : workspace(step) + m.offset;
  };
  transfers_.clear();
  for (const CommCall::Message& m : c.sends) {
    if (!m.block.isOnePiece()) {
      m.block.pack(in, placeOf(m, in));
    }
    transfers_.push_back({Send, m.peer, placeOf(m, in), m.block.bytes});
  }
  for (const CommCall::Message& m : c.receives) {
    transfers_.push_back({Recv, m.peer, placeOf(m, out), m.block.bytes});
  }
  copyBlock(in, c.keptFrom, out, c.keptTo);
  communicator.transfer(transfers_);
  for (const CommCall::Message& m : c.receives) {
    if (!m.block.isOnePiece()) {
      m.block.unpack(placeOf(m, out), out);
    }
  }
}

void Binding::communicateUneven(const Step& step, Communicator& communicator, const void* in, void* out) {
  const CommCall& c = step.comm;
  const bool packs = !c.pack.isWhole();
  const void* sent = packs ? workspace(step) : in;
  void* received = c.unpack.isWhole() ? out : workspace(step, packs ? 1 : 0);
  if (packs) {
    c.pack.pack(in, workspace(step));
  }
  if (c.kind == Collective::AllGather) {
    communicator.allGatherV(c.team, sent, received, c.counts, c.dtype);
  } else if (c.kind == Collective::ReduceScatter) {
    communicator.reduceScatterV(c.team, sent, received, c.counts, c.dtype, c.reduce);
  } else {
    communicator.allToAllV(c.team, sent, received, c.counts, c.received, c.dtype);
  }
  if (received != out) {
    c.unpack.unpack(received, out);
  }
}

StridedElements Binding::elements(int64_t tensor) const {
  const TensorPlan& t = program_->tensors[tensor];
  return {pointer(tensor), t.dtype, t.sizes, t.strides};
}

Tensor Binding::view(int64_t tensor) const {
  const TensorPlan& t = program_->tensors[tensor];
  return Tensor::wrap(pointer(tensor), t.sizes, t.strides, t.dtype);
}

std::vector<Argument> Binding::referenceInputs(const Step& step, std::span<const Argument> inputs) const {
  auto arguments = mapped<Argument>(step.reads, [this](int64_t t) { return view(t).clone(); });
  for (int64_t i = 0; i < std::ssize(inputs); i++) {
    if (!program_->fusion->inputs()[i]->isTensor()) {
      arguments.push_back(inputs[i]);
    }
  }
  return arguments;
}

void Binding::reference(const Step& step, std::span<const Argument> inputs) {
  std::vector<Tensor> results = interpret(*step.reference, inputs);
  for (int64_t k = 0; k < std::ssize(results); k++) {
    view(step.writes[k]).copyFrom(results[k]);
  }
}

void Binding::compareWithReference(const Step& step, std::span<const Argument> inputs) const {
  std::vector<BoundedTensor> expected = interpretWithBounds(*step.reference, inputs);
  for (int64_t k = 0; k < std::ssize(expected); k++) {
    expected[k].uncertain = 0;  // a difference at a discontinuity is no error
    std::optional<std::string> difference = compare(view(step.writes[k]), expected[k]);
    invariant(!difference, "[verify] T{}, computed by {}, differs from the reference: {}\nkernel:\n{}",
              program_->tensors[step.writes[k]].val, step.name, difference.value_or(""), step.launch.program);
  }
}

}  // namespace meshfuse
