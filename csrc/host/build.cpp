#include "host/build.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/error.h"
#include "base/exact.h"
#include "base/ranges.h"
#include "host/order_steps.h"
#include "host/reference.h"
#include "host/verify_program.h"
#include "ir/fusion.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

class HostBuilder {
 public:
  HostBuilder(std::shared_ptr<const Fusion> fusion, std::span<const Segment> segments, const BuildOptions& options)
      : fusion_(std::move(fusion)),
        segments_(segments),
        options_(options),
        program_{.fusion = fusion_,
                 .device = options.device,
                 .deviceId = options.device->id(),
                 .rank = options.rank,
                 .ranks = options.ranks,
                 .identity = options.identity,
                 .communicates = options.communicates} {}

  std::shared_ptr<const HostProgram> build() {
    for (const Val* in : fusion_->inputs()) {
      if (in->isTensor()) {
        tensor(in->asTensor());
      }
    }
    shareStorage();
    std::vector<tile::Program> programs;
    for (const Segment& s : segments_) {
      if (s.kind == SegmentKind::Kernel) {
        programs.push_back(s.plan.program);
      }
    }
    kernels_ = options_.device->compile(programs);
    for (const Segment& s : segments_) {
      addStep(s);
    }
    finishOutputs();
    orderSteps(program_, mapped(indices(storage_), [this](int64_t t) { return root(t); }), options_.overlap);
    if (!program_.teams.empty()) {
      verifyHostProgram(program_);
    }
    countPeak();
    return std::make_shared<const HostProgram>(std::move(program_));
  }

 private:
  int64_t tensor(const TensorView* tv) {
    auto [it, isNew] = position_.try_emplace(tv->id(), std::ssize(program_.tensors));
    if (isNew) {
      const bool isInput = tv->isFusionInput();
      storage_.push_back(it->second);
      program_.tensors.push_back({.val = tv->id(),
                                  .dtype = tv->dtype(),
                                  .sizes = tv->constantShape(),
                                  .strides = layoutOf(tv, options_.layouts).strides,
                                  .bytes = tv->numel() * dataTypeSize(tv->dtype()),
                                  .place = isInput ? Place::Input : Place::Arena,
                                  .index = isInput ? positionIn(fusion_->inputs(), tv) : 0});
    }
    return it->second;
  }

  std::vector<int64_t> tensors(const std::vector<TensorView*>& tvs) {
    return mapped(tvs, [this](const TensorView* tv) { return tensor(tv); });
  }

  int64_t root(int64_t t) const {
    while (storage_[t] != t) {
      t = storage_[t];
    }
    return t;
  }

  // Views share the memory of the viewed tensor; a result that is a view determines the memory of that tensor.
  void shareStorage() {
    for (const Segment& s : segments_) {
      const std::vector<int64_t> inputs = tensors(s.group.inputs);
      for (const int64_t out : tensors(s.group.outputs)) {
        if (s.kind == SegmentKind::View) {
          storage_[out] = root(inputs[0]);
        }
      }
    }
    for (int64_t i = 0; i < std::ssize(fusion_->outputs()); i++) {
      const Val* out = fusion_->outputs()[i];
      const int64_t at = tensor(out->asTensor());
      const std::optional<int64_t> alias = fusion_->aliasOf(i);
      program_.outputs.push_back(at);
      program_.aliasOf.push_back(alias);
      TensorPlan& r = program_.tensors[root(at)];
      const auto writes = [&](const Segment& s) { return s.inPlace.contains(out->id()); };
      // where an input or another result already has the memory, the result is copied at the end
      if (r.place == Place::Arena && (!alias || std::ranges::any_of(segments_, writes))) {
        if (alias) {
          r.strides = program_.tensors[position_.at(fusion_->inputs()[*alias]->id())].strides;
        }
        putResult(r, i);
      }
    }
    for (int64_t t = 0; t < std::ssize(program_.tensors); t++) {
      const TensorPlan& r = program_.tensors[root(t)];
      program_.tensors[t].place = r.place;
      program_.tensors[t].index = r.index;
    }
  }

  // Places a tensor in the memory of result number `output`, which may be that of an input.
  void putResult(TensorPlan& t, int64_t output) const {
    const std::optional<int64_t> alias = program_.aliasOf[output];
    t.place = alias ? Place::Input : Place::Output;
    t.index = alias.value_or(output);
  }

  IntExpr bound(const IntExpr& e) const { return e.substitute(valuesIn(options_.coordinates)); }

  int64_t constantOf(const IntExpr& e, const tile::Program& program, const LaunchPlan& launch) const {
    std::map<std::string, int64_t> known;
    for (int64_t k = 0; k < std::ssize(program.sizes); k++) {
      if (launch.sizes[k].isConst()) {
        known.try_emplace(program.sizes[k].name, launch.sizes[k].constValue());
      }
    }
    return e.evaluate(valuesIn(known));
  }

  void addStep(const Segment& s) {
    // tensors that are only on other ranks need no step
    const bool makesNothing =
        std::ranges::all_of(s.group.outputs, [](const TensorView* tv) { return tv->numel() == 0; });
    if (s.kind == SegmentKind::View || (s.kind == SegmentKind::Reference && makesNothing)) {
      return;
    }
    Step step{.reads = tensors(s.group.inputs), .writes = tensors(s.group.outputs)};
    std::string result = s.group.outputs.empty() ? "" : s.group.outputs[0]->toString();
    if (s.kind == SegmentKind::Communicate && step.writes.empty()) {  // of a rank that only sends
      step.writes.push_back(tensor(s.group.exprs[0]->tensorOutput()));
      result = s.group.exprs[0]->output()->toString();
    }
    switch (s.kind) {
      case SegmentKind::Kernel:
        step.kind = HostStepKind::Launch;
        step.name = fmt::format("{} {}", s.plan.kind, result);
        launch(step, s.plan, kernels_[launches_++]);
        break;
      case SegmentKind::Library:
        step.name = fmt::format("{} {}", s.call.name(), result);
        call(step, s.call);
        break;
      case SegmentKind::Communicate:
        step.kind = HostStepKind::Communicate;
        communicate(step, *s.group.exprs[0]);
        step.name = fmt::format("{} {}", step.comm.name(), result);
        step.comm.program = programNumber(options_.identity, s.group.exprs[0]->attributes().comm.number);
        program_.communicates = true;
        break;
      case SegmentKind::Reference:
        step.kind = HostStepKind::Reference;
        step.name = fmt::format("reference {}", result);
        break;
      case SegmentKind::View:
        break;
    }
    if (s.kind != SegmentKind::Communicate) {
      step.reference = referenceOf(*fusion_, s.group, [this](const IntExpr& e) { return bound(e); });
    }
    program_.steps.push_back(std::move(step));
  }

  // A step that calls a library or another existing routine.
  void call(Step& step, const LibraryCall& call) {
    step.kind = HostStepKind::Routine;
    step.operands = tensors(call.op->tensorInputs());
    step.routine = options_.device->routine(
        *call.op, {.layouts = call.layouts,
                   .valueOf = [this](const IntExpr& offset) { return bound(offset).constValue(); },
                   .activation = call.activation});
    if (const int64_t bytes = step.routine->workspaceBytes(); bytes > 0) {
      step.workspaces.push_back({bytes});
    }
  }

  void launch(Step& step, const KernelPlan& plan, std::shared_ptr<const Kernel> kernel) {
    LaunchPlan& l = step.launch;
    l.kernel = std::move(kernel);
    l.program = tile::toString(plan.program);
    l.checksIndices = plan.program.checksIndices();
    l.sizes = mapped(plan.sizes, [this](const IntExpr& e) { return bound(e); });
    l.scalars = plan.scalars;
    l.scalarTypes = mapped(plan.program.scalars, &tile::ScalarParam::dtype);
    for (const tile::GridDim& g : plan.program.grid) {
      l.parts *= constantOf(g.count, plan.program, l);
    }
    for (const KernelPlan::Slot& slot : plan.slots) {
      if (slot.tensor != nullptr) {
        l.tensors.push_back(tensor(slot.tensor));
        continue;
      }
      const KernelPlan::Workspace& w = plan.workspaces[slot.workspace];
      l.tensors.push_back(-1);
      step.workspaces.push_back({constantOf(w.elements, plan.program, l) * dataTypeSize(w.dtype), w.zeroed});
    }
    std::vector<uint64_t> slots(l.tensors.size(), 0);
    for (const IntExpr& e : l.sizes) {
      slots.push_back(e.isConst() ? static_cast<uint64_t>(e.constValue()) : 0);
    }
    slots.resize(slots.size() + l.scalars.size());
    program_.scratchBytes = std::max(program_.scratchBytes, options_.device->scratchBytes(*l.kernel, slots));
  }

  void communicate(Step& step, const Expr& e) {
    const CommAttributes& a = e.attributes().comm;
    CommCall& c = step.comm;
    c = {.kind = a.kind, .reduce = a.reduce, .dtype = e.output()->dtype(), .root = a.root};
    if (a.kind == Collective::Transfer) {
      return transfer(step, e);
    }
    append(c.team.ranks, fusion_->meshes().at(a.mesh).team(options_.rank, a.axes));
    if (a.isUneven()) {
      return communicateUneven(step, e);
    }
    const int64_t size = dataTypeSize(c.dtype);
    const int64_t in = e.tensorInputs()[0]->numel();
    const int64_t out = e.tensorOutput()->numel();
    const auto n = std::ssize(c.team.ranks);
    c.count = traits(a.kind).operandHasBlocks ? in / n : in;
    const bool isRoot = c.root.isConst() && c.team.ranks.at(c.root.constValue()) == options_.rank;
    c.bytesReceived =
        a.kind != Collective::Broadcast || !c.root.isConst()
            ? static_cast<int64_t>(amountReceived(a.kind, static_cast<double>(in * size),
                                                  static_cast<double>(out * size), static_cast<double>(n)))
        : isRoot ? 0
                 : in * size;
  }

  // A permutation sends and receives whole tensors.
  CommAttributes asBlocks(const Expr& e) const {
    CommAttributes a = e.attributes().comm;
    const std::vector<int64_t>& devices = fusion_->meshes().at(a.mesh).devices();
    const auto whole = [](const TensorView* tv) { return Part::whole(tv->constantShape()); };
    for (int64_t d = 0; d < std::ssize(a.sources); d++) {
      const int64_t source = devices[a.sources[d]];
      if (source == options_.rank) {
        a.to.push_back(devices[d]);
        a.sends.push_back(whole(e.tensorInputs()[0]));
      }
      if (devices[d] == options_.rank) {
        a.from.push_back(source);
        a.receives.push_back(whole(e.tensorOutput()));
      }
    }
    return a;
  }

  void transfer(Step& step, const Expr& e) {
    const CommAttributes a = asBlocks(e);
    CommCall& c = step.comm;
    const int64_t size = dataTypeSize(c.dtype);
    int64_t space = 0;
    BlockCopy keptFrom;
    BlockCopy keptTo;
    const auto add = [&](const std::vector<Part>& parts, const std::vector<int64_t>& peers, const TensorView* tv,
                         const auto& copyOf, std::vector<CommCall::Message>& messages, BlockCopy& kept) {
      for (const int64_t k : indices(parts)) {
        BlockCopy block = copyOf({parts[k]}, tv->constantShape(), size);
        if (peers[k] == options_.rank) {
          kept = std::move(block);
          continue;
        }
        const int64_t offset = std::exchange(space, addExact(space, block.isOnePiece() ? 0 : block.bytes));
        messages.push_back({peers[k], std::move(block), offset});
        c.team.ranks.push_back(peers[k]);
      }
    };
    c.isPermutation = !a.sources.empty();
    c.team.ranks.push_back(options_.rank);
    if (c.isPermutation) {
      append(c.team.ranks, fusion_->meshes().at(a.mesh).team(options_.rank, a.axes));
    }
    add(a.sends, a.to, e.tensorInputs()[0], packing, c.sends, keptFrom);
    add(a.receives, a.from, e.tensorOutput(), unpacking, c.receives, keptTo);
    c.kept = directCopy(keptFrom, keptTo);
    c.bytesReceived = sumOf(c.receives, [](const CommCall::Message& m) { return m.block.bytes; });
    if (space > 0) {
      step.workspaces.push_back({space});
    }
    std::ranges::sort(c.team.ranks);
    c.team.ranks.erase(std::ranges::unique(c.team.ranks).begin(), c.team.ranks.end());
  }

  void communicateUneven(Step& step, const Expr& e) {
    const CommAttributes& a = e.attributes().comm;
    CommCall& c = step.comm;
    const int64_t size = dataTypeSize(c.dtype);
    c.counts = mapped(a.sends.empty() ? a.receives : a.sends, &Part::count);
    c.received = mapped(a.receives, &Part::count);
    c.pack = packing(a.sends, e.tensorInputs()[0]->constantShape(), size);
    c.unpack = unpacking(a.receives, e.tensorOutput()->constantShape(), size);
    for (const BlockCopy* copy : {&c.pack, &c.unpack}) {
      if (!copy->isWhole()) {
        step.workspaces.push_back({copy->bytes});
      }
    }
    for (const int64_t k : indices(c.team.ranks)) {
      if (c.team.ranks[k] != options_.rank) {
        c.bytesReceived += size * (a.kind == Collective::ReduceScatter ? e.tensorOutput()->numel() : c.received[k]);
      }
    }
  }

  // Results that could not be written to their own memory are copied there at the end.
  void finishOutputs() {
    for (int64_t i = 0; i < std::ssize(program_.outputs); i++) {
      const int64_t from = program_.outputs[i];
      const TensorPlan& source = program_.tensors[from];
      TensorPlan target = source;
      putResult(target, i);
      if (source.place == target.place && source.index == target.index) {
        continue;
      }
      const std::optional<int64_t> alias = program_.aliasOf[i];
      const Val* like = alias ? fusion_->inputs()[*alias] : fusion_->outputs()[i];
      target.strides = layoutOf(like->asTensor(), options_.layouts).strides;
      const int64_t to = std::ssize(program_.tensors);
      program_.steps.push_back(
          {.kind = HostStepKind::Copy, .name = fmt::format("copy T{}", target.val), .reads = {from}, .writes = {to}});
      program_.tensors.push_back(std::move(target));
      storage_.push_back(to);
      program_.outputs[i] = to;
    }
  }

  void countPeak() {
    const auto bytesOfInput = [&](const Val* in) {
      return in->isTensor() ? program_.tensors[position_.at(in->id())].bytes : 0;
    };
    const auto bytesOfOutput = [&](int64_t i) {
      return program_.aliasOf[i] ? 0 : program_.tensors[program_.outputs[i]].bytes;
    };
    program_.peakBytes = addExact(program_.arenaBytes, addExact(sumExact(fusion_->inputs(), bytesOfInput),
                                                                sumExact(indices(program_.outputs), bytesOfOutput)));
  }

  std::shared_ptr<const Fusion> fusion_;
  std::span<const Segment> segments_;
  const BuildOptions& options_;
  HostProgram program_;
  std::map<int64_t, int64_t> position_;  // Val id -> tensor
  std::vector<int64_t> storage_;         // tensor -> the tensor whose memory it shares
  std::vector<std::shared_ptr<const Kernel>> kernels_;
  size_t launches_ = 0;  // number of launches with a kernel
};

}  // namespace

std::shared_ptr<const HostProgram> buildHostProgram(std::shared_ptr<const Fusion> fusion,
                                                    std::span<const Segment> segments, const BuildOptions& options) {
  return HostBuilder(std::move(fusion), segments, options).build();
}

}  // namespace meshfuse
