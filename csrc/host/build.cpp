#include "host/build.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "host/reference.h"
#include "host/routine.h"
#include "ir/fusion.h"
#include "jit/orc/cpu_compiler.h"
#include "library/cpu/contraction.h"
#include "tensor/tensor.h"

namespace meshfuse {

namespace {

class HostBuilder {
 public:
  HostBuilder(std::shared_ptr<const Fusion> fusion, std::span<const Segment> segments, const BuildOptions& options)
      : fusion_(std::move(fusion)), segments_(segments), options_(options) {}

  std::shared_ptr<const HostProgram> build() {
    program_.fusion = fusion_;
    program_.numInputs = static_cast<int>(fusion_->inputs().size());
    program_.workers = options_.workers;
    program_.rank = options_.rank;
    program_.communicates = options_.communicates;
    for (const Segment& s : segments_) {
      inPlace_.insert(s.inPlace.begin(), s.inPlace.end());
    }
    for (const Val* in : fusion_->inputs()) {
      if (in->isTensor()) {
        tensor(in->asTensor());
      }
    }
    shareStorage();
    compileKernels();
    for (const Segment& s : segments_) {
      addStep(s);
    }
    finishOutputs();
    planArena();
    return std::make_shared<const HostProgram>(std::move(program_));
  }

 private:
  int tensor(const TensorView* tv) {
    auto [it, isNew] = position_.try_emplace(tv->id(), static_cast<int>(program_.tensors.size()));
    if (isNew) {
      TensorPlan t;
      t.val = tv->id();
      t.dtype = tv->dtype();
      t.sizes = tv->constantShape();
      t.strides = layoutOf(tv, options_.layouts).strides;
      t.bytes = tv->numel() * dataTypeSize(t.dtype);
      if (tv->isFusionInput()) {
        t.place = Place::Input;
        t.index = inputNumber(tv);
      }
      storage_.push_back(it->second);
      program_.tensors.push_back(std::move(t));
    }
    return it->second;
  }

  int inputNumber(const Val* val) const {
    const std::vector<Val*>& ins = fusion_->inputs();
    return static_cast<int>(std::find(ins.begin(), ins.end(), val) - ins.begin());
  }

  int root(int t) const {
    while (storage_[t] != t) {
      t = storage_[t];
    }
    return t;
  }

  int inputPosition(int input) const { return position_.at(fusion_->inputs()[input]->id()); }

  // Views share the memory of the viewed tensor; a result that is a view determines the memory of that tensor.
  void shareStorage() {
    for (const Segment& s : segments_) {
      for (const TensorView* tv : s.group.inputs) {
        tensor(tv);
      }
      for (const TensorView* tv : s.group.outputs) {
        tensor(tv);
      }
      if (s.kind == SegmentKind::View) {
        for (const TensorView* out : s.group.outputs) {
          storage_[tensor(out)] = root(tensor(s.group.inputs[0]));
        }
      }
    }
    for (size_t i = 0; i < fusion_->outputs().size(); i++) {
      const Val* out = fusion_->outputs()[i];
      int at = tensor(out->asTensor());
      program_.outputs.push_back(at);
      program_.aliasOf.push_back(fusion_->aliasOf(static_cast<int>(i)));
      TensorPlan& r = program_.tensors[root(at)];
      if (r.place != Place::Arena) {
        continue;  // an input or another result already has the memory: copied at the end
      }
      std::optional<int> alias = program_.aliasOf.back();
      if (alias && !inPlace_.contains(out->id())) {
        continue;
      }
      if (alias) {
        r.strides = program_.tensors[inputPosition(*alias)].strides;
      }
      r.place = alias ? Place::Input : Place::Output;
      r.index = alias ? *alias : static_cast<int>(i);
    }
    for (size_t t = 0; t < program_.tensors.size(); t++) {
      const TensorPlan& r = program_.tensors[root(static_cast<int>(t))];
      program_.tensors[t].place = r.place;
      program_.tensors[t].index = r.index;
    }
  }

  void compileKernels() {
    std::vector<tile::Program> programs;
    for (const Segment& s : segments_) {
      if (s.kind == SegmentKind::Kernel) {
        programs.push_back(s.plan.program);
      }
    }
    kernels_ = options_.compile(programs);
  }

  IntExpr bound(const IntExpr& e) const { return e.substitute(valuesIn(options_.coordinates)); }

  int64_t constantOf(const IntExpr& e, const tile::Program& program, const LaunchPlan& launch) const {
    return e.evaluate([&](std::string_view symbol) -> std::optional<int64_t> {
      for (size_t k = 0; k < program.sizes.size(); k++) {
        if (program.sizes[k].name == symbol && launch.sizes[k].isConst()) {
          return launch.sizes[k].constValue();
        }
      }
      return std::nullopt;
    });
  }

  // Tensors that are only on other ranks need no step.
  bool makesNothing(const Segment& s) {
    return std::all_of(s.group.outputs.begin(), s.group.outputs.end(),
                       [this](const TensorView* tv) { return program_.tensors[tensor(tv)].bytes == 0; });
  }

  void addStep(const Segment& s) {
    if (s.kind == SegmentKind::View || (s.kind == SegmentKind::Reference && makesNothing(s))) {
      return;
    }
    Step step;
    for (const TensorView* tv : s.group.inputs) {
      step.reads.push_back(tensor(tv));
    }
    for (const TensorView* tv : s.group.outputs) {
      step.writes.push_back(tensor(tv));
    }
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
        step.name = fmt::format("{} {}", s.call.op->opName(), result);
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

  void workspace(Step& step, int64_t bytes) {
    step.launch.workspaces.push_back(std::ssize(program_.arena));  // offset filled in by planArena
    int at = static_cast<int>(program_.steps.size());
    program_.arena.push_back({bytes, at, at});
  }

  // A step that calls a library or another existing routine.
  void call(Step& step, const LibraryCall& call) {
    for (const TensorView* tv : call.op->tensorInputs()) {
      step.operands.push_back(tensor(tv));
    }
    int64_t bytes = 0;
    step.routine = routineOf(
        *call.op, {.layouts = call.layouts, .workers = options_.workers, .valueOf = [this](const IntExpr& offset) {
                     return bound(offset).constValue();
                   }});
    if (step.routine != nullptr) {
      step.kind = HostStepKind::Routine;
      bytes = step.routine->workspaceBytes();
    } else {
      step.kind = HostStepKind::Contract;
      step.contraction = std::make_shared<Contraction>(*call.op, call.layouts);
      bytes = step.contraction->workspaceBytes();
    }
    if (bytes > 0) {
      workspace(step, bytes);
    }
  }

  void launch(Step& step, const KernelPlan& plan, std::shared_ptr<const CpuKernel> kernel) {
    LaunchPlan& l = step.launch;
    l.kernel = std::move(kernel);
    l.program = tile::toString(plan.program);
    l.checksIndices = std::ranges::any_of(plan.program.values, [](const tile::Value& v) {
      return v.kind == tile::ValueKind::Point && v.op == PointOp::CheckedIndex;
    });
    for (const IntExpr& e : plan.sizes) {
      l.sizes.push_back(bound(e));
    }
    for (size_t k = 0; k < plan.scalars.size(); k++) {
      l.scalars.push_back(plan.scalars[k]);
      l.scalarTypes.push_back(plan.program.scalars[k].dtype);
    }
    for (const tile::GridDim& g : plan.program.grid) {
      l.parts *= constantOf(g.count, plan.program, l);
    }
    for (const KernelPlan::Slot& slot : plan.slots) {
      if (slot.tensor != nullptr) {
        l.tensors.push_back(tensor(slot.tensor));
        continue;
      }
      const KernelPlan::Workspace& w = plan.workspaces[slot.workspace];
      int64_t bytes = constantOf(w.elements, plan.program, l) * dataTypeSize(w.dtype);
      l.tensors.push_back(-1);
      l.zeroed.push_back(w.zeroed ? bytes : 0);
      workspace(step, bytes);
    }
    std::vector<uint64_t> slots(l.tensors.size(), 0);
    for (const IntExpr& e : l.sizes) {
      slots.push_back(e.isConst() ? static_cast<uint64_t>(e.constValue()) : 0);
    }
    slots.resize(slots.size() + l.scalars.size());
    l.scratchBytes = l.kernel->scratchBytes(slots.data());
    program_.scratchBytes = std::max(program_.scratchBytes, l.scratchBytes);
  }

  void communicate(Step& step, const Expr& e) {
    const CommAttributes& a = e.attributes().comm;
    const DeviceMesh& mesh = fusion_->meshes().at(a.mesh);
    CommCall& c = step.comm;
    c.kind = a.kind;
    c.reduce = a.reduce;
    c.root = a.root;
    c.dtype = e.output()->dtype();
    if (a.kind == Collective::Transfer) {
      transfer(step, e);
      return;
    }
    for (int64_t r : mesh.team(options_.rank, a.axes)) {
      c.team.ranks.push_back(static_cast<int>(r));
    }
    if (a.isUneven()) {
      communicateUneven(step, e);
      return;
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
    for (size_t d = 0; d < a.sources.size(); d++) {
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
    const std::vector<int64_t> in = e.tensorInputs()[0]->constantShape();
    const std::vector<int64_t> out = e.tensorOutput()->constantShape();
    int64_t space = 0;
    const auto add = [&](std::vector<CommCall::Message>& list, int64_t peer, BlockCopy block) {
      const bool inPlace = block.isOnePiece();
      c.team.ranks.push_back(static_cast<int>(peer));
      list.push_back({static_cast<int>(peer), std::move(block), space});
      space += inPlace ? 0 : list.back().block.bytes;
    };
    c.isPermutation = !a.sources.empty();
    c.team.ranks.push_back(options_.rank);
    if (c.isPermutation) {
      const DeviceMesh& mesh = fusion_->meshes().at(a.mesh);
      for (const int64_t member : mesh.team(options_.rank, a.axes)) {
        c.team.ranks.push_back(static_cast<int>(member));
      }
    }
    for (size_t k = 0; k < a.sends.size(); k++) {
      BlockCopy block = blockCopy({a.sends[k]}, in, size);
      if (a.to[k] == options_.rank) {
        c.keptFrom = std::move(block);
      } else {
        add(c.sends, a.to[k], std::move(block));
      }
    }
    for (size_t k = 0; k < a.receives.size(); k++) {
      BlockCopy block = blockCopy({a.receives[k]}, out, size);
      if (a.from[k] == options_.rank) {
        c.keptTo = std::move(block);
      } else {
        c.bytesReceived += block.bytes;
        add(c.receives, a.from[k], std::move(block));
      }
    }
    if (space > 0) {
      workspace(step, space);
    }
    std::sort(c.team.ranks.begin(), c.team.ranks.end());
    c.team.ranks.erase(std::unique(c.team.ranks.begin(), c.team.ranks.end()), c.team.ranks.end());
  }

  void communicateUneven(Step& step, const Expr& e) {
    const CommAttributes& a = e.attributes().comm;
    CommCall& c = step.comm;
    const int64_t size = dataTypeSize(c.dtype);
    const auto counted = [](const std::vector<Part>& parts) {
      std::vector<int64_t> counts;
      for (const Part& part : parts) {
        counts.push_back(part.count());
      }
      return counts;
    };
    c.counts = counted(a.sends.empty() ? a.receives : a.sends);
    c.received = counted(a.receives);
    c.pack = blockCopy(a.sends, e.tensorInputs()[0]->constantShape(), size);
    c.unpack = blockCopy(a.receives, e.tensorOutput()->constantShape(), size);
    for (const BlockCopy* copy : {&c.pack, &c.unpack}) {
      if (!copy->isWhole()) {
        workspace(step, copy->bytes);
      }
    }
    const int64_t n = std::ssize(c.team.ranks);
    for (int64_t k = 0; k < n; k++) {
      const size_t at = static_cast<size_t>(k);
      if (c.team.ranks[at] != options_.rank) {
        c.bytesReceived += size * (a.kind == Collective::ReduceScatter ? e.tensorOutput()->numel() : c.received[at]);
      }
    }
  }

  // Results that could not be written to their own memory are copied there at the end.
  void finishOutputs() {
    for (size_t i = 0; i < program_.outputs.size(); i++) {
      int from = program_.outputs[i];
      TensorPlan source = program_.tensors[from];
      std::optional<int> alias = program_.aliasOf[i];
      Place wanted = alias ? Place::Input : Place::Output;
      int index = alias ? *alias : static_cast<int>(i);
      if (source.place == wanted && source.index == index) {
        continue;
      }
      TensorPlan target = source;
      target.place = wanted;
      target.index = index;
      const Val* like = alias ? fusion_->inputs()[*alias] : fusion_->outputs()[i];
      target.strides = layoutOf(like->asTensor(), options_.layouts).strides;
      int to = static_cast<int>(program_.tensors.size());
      program_.tensors.push_back(target);
      storage_.push_back(to);
      program_.outputs[i] = to;
      Step step;
      step.kind = HostStepKind::Copy;
      step.name = fmt::format("copy T{}", source.val);
      step.reads = {from};
      step.writes = {to};
      program_.steps.push_back(std::move(step));
    }
  }

  void planArena() {
    std::vector<MemoryBlock>& blocks = program_.arena;
    std::map<int, size_t> blockOf;  // storage root -> block
    for (size_t i = 0; i < program_.steps.size(); i++) {
      for (const auto* list : {&program_.steps[i].reads, &program_.steps[i].writes}) {
        for (int t : *list) {
          int r = root(t);
          if (program_.tensors[r].place != Place::Arena) {
            continue;
          }
          auto [it, isNew] = blockOf.try_emplace(r, blocks.size());
          if (isNew) {
            blocks.push_back({.bytes = program_.tensors[r].bytes, .firstStep = static_cast<int>(i), .tensor = r});
          }
          blocks[it->second].lastStep = static_cast<int>(i);
        }
      }
    }
    program_.arenaBytes = planMemory(blocks);
    for (size_t t = 0; t < program_.tensors.size(); t++) {
      auto it = blockOf.find(root(static_cast<int>(t)));
      if (it != blockOf.end()) {
        program_.tensors[t].offset = blocks[it->second].offset;
      }
    }
    for (Step& s : program_.steps) {
      for (int64_t& w : s.launch.workspaces) {
        w = blocks[w].offset;
      }
    }
    program_.peakBytes = program_.arenaBytes;
    for (const Val* in : fusion_->inputs()) {
      program_.peakBytes += in->isTensor() ? program_.tensors[position_.at(in->id())].bytes : 0;
    }
    for (size_t i = 0; i < program_.outputs.size(); i++) {
      program_.peakBytes += program_.aliasOf[i] ? 0 : program_.tensors[program_.outputs[i]].bytes;
    }
  }

  std::shared_ptr<const Fusion> fusion_;
  std::span<const Segment> segments_;
  const BuildOptions& options_;
  HostProgram program_;
  std::map<int, int> inPlace_;   // as Segment::inPlace, of all
  std::map<int, int> position_;  // Val id -> tensor
  std::vector<int> storage_;     // tensor -> the tensor whose memory it shares
  std::vector<std::shared_ptr<const CpuKernel>> kernels_;
  size_t launches_ = 0;  // number of launches with a kernel
};

}  // namespace

std::shared_ptr<const HostProgram> buildHostProgram(std::shared_ptr<const Fusion> fusion,
                                                    std::span<const Segment> segments, const BuildOptions& options) {
  return HostBuilder(std::move(fusion), segments, options).build();
}

}  // namespace meshfuse
