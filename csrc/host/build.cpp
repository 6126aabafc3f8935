#include "host/build.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/exact.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "digits/row_major.h"
#include "host/order_steps.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"

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
    program_.inputs =
        mapped(fusion_->inputs(), [this](const Val* in) { return in->isTensor() ? tensor(in->asTensor()) : -1; });
    shareStorage();
    std::vector<tile::Program> programs;
    for (const Segment& s : segments_) {
      if (s.kind == SegmentKind::Kernel && s.kernel == std::ssize(programs)) {
        programs.push_back(s.plan.program);
      }
    }
    kernels_ = options_.device->compile(programs);
    for (const Segment& s : segments_) {
      addStep(s);
    }
    finishOutputs();
    orderSteps(program_, options_.overlap);
    shareExpressions();
    program_.symbols = symbolsOf(program_);
    if (program_.symbols.empty()) {
      program_.constant = std::make_shared<const ProgramSizes>(sizesOf(program_));
    }
    return std::make_shared<const HostProgram>(std::move(program_));
  }

 private:
  int64_t tensor(const TensorView* tv) {
    auto [it, isNew] = position_.try_emplace(tv->id(), std::ssize(program_.tensors));
    if (isNew) {
      const bool isInput = tv->isFusionInput();
      program_.tensors.push_back({.val = tv->id(),
                                  .dtype = tv->dtype(),
                                  .sizes = sizesIn(tv),
                                  .strides = stridesOf(tv),
                                  .bytes = elementsOf(tv) * dataTypeSize(tv->dtype()),
                                  .place = isInput ? Place::Input : Place::Arena,
                                  .index = isInput ? positionIn(fusion_->inputs(), tv) : 0});
    }
    return it->second;
  }

  std::vector<int64_t> tensors(const std::vector<TensorView*>& tvs) {
    return mapped(tvs, [this](const TensorView* tv) { return tensor(tv); });
  }

  // Over the symbols of the program.
  std::vector<IntExpr> sizesIn(const TensorView* tv) const {
    return mapped(tv->shape(), [this](const IntExpr& e) { return bound(e); });
  }
  IntExpr elementsOf(const TensorView* tv) const {
    const std::vector<IntExpr> sizes = sizesIn(tv);
    return contains(sizes, IntExpr(0)) ? 0 : product(sizes);
  }
  std::vector<IntExpr> stridesOf(const TensorView* tv) const {
    return mapped(layoutOf(tv, options_.layouts).strides, [this](const IntExpr& e) { return bound(e); });
  }

  // Views share the memory of the viewed tensor; a result that is a view determines the memory of that tensor.
  void shareStorage() {
    for (const Segment& s : segments_) {
      const std::vector<int64_t> inputs = tensors(s.group.inputs);
      for (const int64_t out : tensors(s.group.outputs)) {
        if (s.kind == SegmentKind::View) {
          program_.tensors[out].storage = program_.storageOf(inputs[0]);
        }
      }
    }
    for (int64_t i = 0; i < std::ssize(fusion_->outputs()); i++) {
      const Val* out = fusion_->outputs()[i];
      const int64_t at = tensor(out->asTensor());
      const std::optional<int64_t> alias = fusion_->aliasOf(i);
      program_.outputs.push_back(at);
      program_.aliasOf.push_back(alias);
      TensorPlan& r = program_.tensors[program_.storageOf(at)];
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
      const TensorPlan& r = program_.tensors[program_.storageOf(t)];
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

  // An expression over the sizes of a tile program.
  static IntExpr sizeIn(const IntExpr& e, const tile::Program& program, const LaunchPlan& launch) {
    return e.substitute([&](std::string_view symbol) -> std::optional<IntExpr> {
      const auto known = std::ranges::find(program.sizes, symbol, &tile::SizeParam::name);
      return known == program.sizes.end() ? std::nullopt : std::optional(launch.sizes[known - program.sizes.begin()]);
    });
  }

  void addStep(const Segment& s) {
    // tensors that are only on other ranks need no step
    const bool makesNothing =
        std::ranges::all_of(s.group.outputs, [](const TensorView* tv) { return contains(tv->shape(), IntExpr(0)); });
    const std::optional<HostStepKind> kind = stepKindOf(s.kind);
    if (!kind || (kind == HostStepKind::Reference && makesNothing)) {
      return;
    }
    Step step{.kind = *kind, .reads = tensors(s.group.inputs), .writes = tensors(s.group.outputs)};
    std::string result = s.group.outputs.empty() ? "" : s.group.outputs[0]->toString();
    if (s.kind == SegmentKind::Communicate && step.writes.empty()) {  // of a rank that only sends
      step.writes.push_back(tensor(s.group.exprs[0]->tensorOutput()));
      result = s.group.exprs[0]->output()->toString();
    }
    switch (s.kind) {
      case SegmentKind::Kernel:
        step.name = fmt::format("{} {}", s.plan.kind, result);
        launch(step, s.plan, kernels_.at(s.kernel));
        break;
      case SegmentKind::Library:
        step.name = fmt::format("{} {}", s.call.op->opName(), result);
        call(step, s.call);
        break;
      case SegmentKind::Communicate:
        communicate(step, *s.group.exprs[0]);
        step.name = fmt::format("{} {}", step.comm.name(), result);
        step.comm.number = s.group.exprs[0]->attributes().comm.number;
        program_.communicates = true;
        break;
      case SegmentKind::Reference:
        step.name = fmt::format("reference {}", result);
        break;
      case SegmentKind::View:
        break;
    }
    if (s.kind != SegmentKind::Communicate) {
      step.reference = StepReference(fusion_, s.group, options_.coordinates);
    }
    program_.steps.push_back(std::move(step));
  }

  // A step that calls a library or another existing routine.
  void call(Step& step, const LibraryCall& call) {
    step.operands = tensors(call.op->tensorInputs());
    step.routine = routineOf(call);
    const std::shared_ptr<const Routine>& made = program_.routines[step.routine].ofConstants;
    const int64_t bytes = made != nullptr ? made->workspaceBytes() : 0;
    if (bytes > 0 || made == nullptr) {
      step.workspaces.push_back({bytes});
    }
  }

  // Its number in the program.
  int64_t routineOf(const LibraryCall& call) {
    const auto [known, isNew] = routines_.try_emplace(textOf(call), std::ssize(program_.routines));
    if (isNew) {
      RoutineCall made{.op = call.op, .layouts = call.layouts, .coordinates = options_.coordinates};
      const auto isConstant = [](const TensorView* tv) {
        return std::ranges::all_of(tv->shape(), [](const IntExpr& e) { return e.isConst(); });
      };
      if (std::ranges::all_of(call.op->tensorInputs(), isConstant) && isConstant(call.op->tensorOutput())) {
        made.ofConstants = routineFor(*options_.device, made, *call.op);
      }
      program_.routines.push_back(std::move(made));
    }
    return known->second;
  }

  // The op on inputs that are stored as its operands are, and where these lie. Ops of equal text have equal routines.
  std::string textOf(const LibraryCall& call) const {
    Fusion alone;
    FusionCloner cloner(*fusion_, alone);
    for (const TensorView* in : call.op->tensorInputs()) {
      if (cloner.find(in) == nullptr) {
        TensorView* stored = alone.tensor(in->dtype(), dimsOf(in));
        alone.addInput(stored);
        cloner.set(in, stored);
      }
    }
    alone.addOutput(cloner.clone(call.op)->output());
    std::string text = alone.toString();
    for (const Val* val : call.op->inputs()) {
      text += val->isTensor() ? layoutText(val->asTensor(), call.layouts) : "";
    }
    return text + layoutText(call.op->tensorOutput(), call.layouts);
  }

  static std::string layoutText(const TensorView* tv, const std::map<int64_t, Layout>& layouts) {
    const Layout layout = layoutOf(tv, layouts);
    return fmt::format("[{}] at {}\n", joined(layout.strides, ", ", &IntExpr::toString), layout.alignment);
  }

  void launch(Step& step, const KernelPlan& plan, std::shared_ptr<const Kernel> kernel) {
    LaunchPlan& l = step.launch;
    l.kernel = std::move(kernel);
    l.program = plan.text;
    l.checksIndices = plan.program.checksIndices();
    l.sizes = mapped(plan.sizes, [this](const IntExpr& e) { return bound(e); });
    l.scalars = plan.scalars;
    l.scalarTypes = mapped(plan.program.scalars, &tile::ScalarParam::dtype);
    for (const tile::GridDim& g : plan.program.grid) {
      l.parts *= sizeIn(g.count, plan.program, l);
    }
    for (const KernelPlan::Slot& slot : plan.slots) {
      if (slot.tensor != nullptr) {
        l.tensors.push_back(tensor(slot.tensor));
        continue;
      }
      const KernelPlan::Workspace& w = plan.workspaces[slot.workspace];
      l.tensors.push_back(-1);
      step.workspaces.push_back({sizeIn(w.elements, plan.program, l) * dataTypeSize(w.dtype), w.zeroed});
    }
  }

  void communicate(Step& step, const Expr& e) {
    const CommAttributes& a = e.attributes().comm;
    CommCall& c = step.comm;
    const DeviceMesh& mesh = fusion_->meshes().at(a.mesh);
    c = {.kind = a.kind,
         .axes = mapped(a.axes, [&](int64_t axis) { return mesh.axisName(axis); }),
         .reduce = a.reduce,
         .dtype = e.output()->dtype(),
         .root = a.root};
    if (a.kind == Collective::Transfer) {
      return transfer(step, e);
    }
    append(c.team.ranks, mesh.team(options_.rank, a.axes));
    if (a.isUneven()) {
      communicateUneven(step, e);
      return combine(step);
    }
    const IntExpr in = elementsOf(e.tensorInputs()[0]);
    const auto n = std::ssize(c.team.ranks);
    c.count = traits(a.kind).operandHasBlocks ? floorDiv(in, n) : in;
    combine(step);
    const IntExpr inBytes = in * dataTypeSize(c.dtype);
    const IntExpr outBytes = elementsOf(e.tensorOutput()) * dataTypeSize(c.dtype);
    const bool isRoot = c.root.isConst() && c.team.ranks.at(c.root.constValue()) == options_.rank;
    c.bytesReceived = a.kind != Collective::Broadcast || !c.root.isConst()
                          ? amountReceived(a.kind, inBytes, outBytes, IntExpr(n))
                      : isRoot ? 0
                               : inBytes;
  }

  // Memory for the operands of a reduction that a kernel of the device combines. Its bytes are known if those of the reduction are; else each
  // set of numbers has its own.
  void combine(Step& step) const {
    CommCall& c = step.comm;
    const auto bytesFor = options_.device->info().combinedBytes;
    const CollectiveOfElements call{c.kind, c.dtype, c.reduce};
    const auto ranks = std::ssize(c.team.ranks);
    c.isCombined = bytesFor != nullptr && bytesFor(call, 1, ranks) > 0;
    if (c.isCombined) {
      const std::vector<IntExpr> counts = c.counts.empty() ? std::vector{c.count} : c.counts;
      int64_t most = 0;
      for (const IntExpr& count : counts) {
        most = std::max(most, count.isConst() ? count.constValue() : 0);
      }
      step.workspaces.push_back({bytesFor(call, most, ranks)});
    }
  }

  // What one rank sends or receives in a transfer.
  struct Ends {
    std::vector<int64_t> peers;
    std::vector<Block> blocks;
  };

  void transfer(Step& step, const Expr& e) {
    const CommAttributes& a = e.attributes().comm;
    CommCall& c = step.comm;
    c.isPermutation = !a.sources.empty();
    c.team.ranks.push_back(options_.rank);
    Ends sends{a.to, mapped(a.sends, Block::of)};
    Ends receives{a.from, mapped(a.receives, Block::of)};
    if (c.isPermutation) {
      const DeviceMesh& mesh = fusion_->meshes().at(a.mesh);
      append(c.team.ranks, mesh.team(options_.rank, a.axes));
      addWhole(sends, receives, e, mesh.devices());
    }
    IntExpr space = 0;
    const auto add = [&](const Ends& ends, const TensorView* tv, std::vector<CommCall::Message>& messages,
                         TensorBlocks& kept) {
      for (const int64_t k : indices(ends.peers)) {
        TensorBlocks block{{ends.blocks[k]}, sizesIn(tv)};
        if (ends.peers[k] == options_.rank) {
          kept = std::move(block);
          continue;
        }
        space += spaceFor(block, c.dtype, &BlockCopy::isOnePiece);
        messages.push_back({ends.peers[k], std::move(block)});
        c.team.ranks.push_back(ends.peers[k]);
      }
    };
    add(sends, e.tensorInputs()[0], c.sends, c.keptFrom);
    add(receives, e.tensorOutput(), c.receives, c.keptTo);
    c.bytesReceived =
        sumOf(c.receives, [](const CommCall::Message& m) { return m.block.count(); }) * dataTypeSize(c.dtype);
    if (!space.isConst(0)) {
      step.workspaces.push_back({space});
    }
    std::ranges::sort(c.team.ranks);
    c.team.ranks.erase(std::ranges::unique(c.team.ranks).begin(), c.team.ranks.end());
  }

  // A permutation sends and receives whole tensors.
  void addWhole(Ends& sends, Ends& receives, const Expr& e, const std::vector<int64_t>& devices) const {
    const std::vector<int64_t>& sources = e.attributes().comm.sources;
    for (const int64_t d : indices(sources)) {
      const int64_t source = devices[sources[d]];
      if (source == options_.rank) {
        sends.peers.push_back(devices[d]);
        sends.blocks.push_back(Block::whole(sizesIn(e.tensorInputs()[0])));
      }
      if (devices[d] == options_.rank) {
        receives.peers.push_back(source);
        receives.blocks.push_back(Block::whole(sizesIn(e.tensorOutput())));
      }
    }
  }

  // Bytes of the workspace for blocks that must lie side by side. Whether they do in their tensor is known if they are constant.
  static IntExpr spaceFor(const TensorBlocks& blocks, DataType dtype, bool (BlockCopy::*needsNone)() const) {
    const int64_t size = dataTypeSize(dtype);
    if (blocks.isConst()) {
      const BlockParts known = partsOf(blocks, &IntExpr::constValue);
      const BlockCopy copy = packing(known.parts, known.sizes, size);
      return (copy.*needsNone)() ? 0 : copy.bytes;
    }
    return blocks.count() * size;
  }

  void communicateUneven(Step& step, const Expr& e) {
    const CommAttributes& a = e.attributes().comm;
    CommCall& c = step.comm;
    const int64_t size = dataTypeSize(c.dtype);
    const auto countOf = [](const Part& part) { return Block::of(part).count(); };
    c.counts = mapped(a.sends.empty() ? a.receives : a.sends, countOf);
    c.received = mapped(a.receives, countOf);
    c.pack = {mapped(a.sends, Block::of), sizesIn(e.tensorInputs()[0])};
    c.unpack = {mapped(a.receives, Block::of), sizesIn(e.tensorOutput())};
    for (const TensorBlocks* blocks : {&c.pack, &c.unpack}) {
      step.workspaces.push_back({spaceFor(*blocks, c.dtype, &BlockCopy::isWhole)});
    }
    for (const int64_t k : indices(c.team.ranks)) {
      if (c.team.ranks[k] != options_.rank) {
        c.bytesReceived += (a.kind == Collective::ReduceScatter ? elementsOf(e.tensorOutput()) : c.received[k]) * size;
      }
    }
  }

  // Results that could not be written to their own memory are copied there at the end.
  void finishOutputs() {
    for (int64_t i = 0; i < std::ssize(program_.outputs); i++) {
      const int64_t from = program_.outputs[i];
      const TensorPlan& source = program_.tensors[from];
      TensorPlan target = source;
      target.storage = -1;
      putResult(target, i);
      if (source.place == target.place && source.index == target.index) {
        continue;
      }
      const std::optional<int64_t> alias = program_.aliasOf[i];
      const Val* like = alias ? fusion_->inputs()[*alias] : fusion_->outputs()[i];
      target.strides = stridesOf(like->asTensor());
      const int64_t to = std::ssize(program_.tensors);
      program_.steps.push_back(
          {.kind = HostStepKind::Copy, .name = fmt::format("copy T{}", target.val), .reads = {from}, .writes = {to}});
      program_.tensors.push_back(std::move(target));
      program_.outputs[i] = to;
    }
  }

  // Equal expressions become copies of one, which share its terms: a binding evaluates all of them, and its cost is the memory that it reads.
  void shareExpressions() {
    std::unordered_multimap<uint64_t, IntExpr> known;
    const auto share = [&](IntExpr& e) {
      if (e.isConst()) {
        return;
      }
      uint64_t key = static_cast<uint64_t>(e.constantTerm());
      for (const IntTerm& term : e.terms()) {
        key = hashCombine(key, static_cast<uint64_t>(term.coefficient));
      }
      const auto [first, last] = known.equal_range(key);
      const auto equal = std::find_if(first, last, [&](const auto& entry) { return entry.second == e; });
      e = (equal == last ? known.emplace(key, e) : equal)->second;
    };
    for (TensorPlan& t : program_.tensors) {
      std::ranges::for_each(t.sizes, share);
      std::ranges::for_each(t.strides, share);
      share(t.bytes);
    }
    for (Step& s : program_.steps) {
      share(s.launch.parts);
      std::ranges::for_each(s.launch.sizes, share);
    }
    std::ranges::for_each(program_.arena, share, &ArenaBlock::bytes);
  }

  std::shared_ptr<const Fusion> fusion_;
  std::span<const Segment> segments_;
  const BuildOptions& options_;
  HostProgram program_;
  std::map<int64_t, int64_t> position_;                 // Val id -> tensor
  std::vector<std::shared_ptr<const Kernel>> kernels_;  // by Segment::kernel
  std::map<std::string, int64_t> routines_;             // by text: number in the program
};

}  // namespace

std::optional<HostStepKind> stepKindOf(SegmentKind kind) {
  switch (kind) {
    case SegmentKind::Kernel:
      return HostStepKind::Launch;
    case SegmentKind::Library:
      return HostStepKind::Routine;
    case SegmentKind::Communicate:
      return HostStepKind::Communicate;
    case SegmentKind::Reference:
      return HostStepKind::Reference;
    case SegmentKind::View:
      break;
  }
  return std::nullopt;
}

std::shared_ptr<const HostProgram> buildHostProgram(std::shared_ptr<const Fusion> fusion,
                                                    std::span<const Segment> segments, const BuildOptions& options) {
  return HostBuilder(std::move(fusion), segments, options).build();
}

}  // namespace meshfuse
