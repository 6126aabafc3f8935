#include "host/program_sizes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/exact.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "host/memory_plan.h"
#include "host/program.h"
#include "host/verify_program.h"
#include "ir/fusion_cloner.h"

namespace meshfuse {

namespace {

using Values = std::map<std::string, int64_t>;

class Evaluation {
 public:
  Evaluation(const HostProgram& program, const Values& values) : program_(program), values_(values) {}

  ProgramSizes run() {
    checkValues();
    result_.values = values_;
    result_.tensors = mapped(program_.tensors, [this](const TensorPlan& t) { return tensor(t); });
    result_.routines.resize(program_.routines.size());
    result_.steps = mapped(program_.steps, [this](const Step& s) { return step(s); });
    packArena();
    countPeak();
    if (!program_.teams.empty()) {
      verifyHostProgram(program_, result_);
    }
    return std::move(result_);
  }

 private:
  void checkValues() const {
    for (const auto& [name, facts] : program_.symbols) {
      const auto known = values_.find(name);
      check(known != values_.end(),
            "[host program] the sizes depend on {}, which has no value, expected one; give it to the binding", name);
      check(agrees(facts, known->second),
            "[host program] {} is {}, expected {}{}; give such a value, or build the program without these facts", name,
            known->second,
            facts.upper == INT64_MAX ? fmt::format("{} or more", facts.lower)
                                     : fmt::format("{} to {}", facts.lower, facts.upper),
            facts.divisor == 1 ? "" : fmt::format(", a multiple of {}", facts.divisor));
    }
  }

  static bool agrees(const SymbolFacts& facts, int64_t value) {
    return value >= facts.lower && value <= facts.upper && value % facts.divisor == 0;
  }

  // Equal expressions of a program share their terms (build.cpp), so each is evaluated once. n and n + 1 may share them, too.
  int64_t valueOf(const IntExpr& e) const {
    if (e.isConst()) {
      return e.constValue();
    }
    std::optional<int64_t>& known = evaluated_[{e.terms().data(), e.constantTerm()}];
    if (!known) {
      known = e.evaluate(valuesIn(values_));
    }
    return *known;
  }

  int64_t countOf(const IntExpr& e, std::string_view what) const {
    const int64_t value = valueOf(e);
    if (value < 0) {
      throwUserError(fmt::format("{} {} is {}, expected 0 or more", what, e.toString(), value));
    }
    return value;
  }

  // Evaluates; a UserError then begins with `subject` and the values of the symbols.
  template <class Evaluate>
  auto naming(const std::function<std::string()>& subject, Evaluate&& evaluate) const {
    try {
      return evaluate();
    } catch (const UserError& e) {
      const auto given = [this](const auto& symbol) {
        return fmt::format("{} = {}", symbol.first, values_.at(symbol.first));
      };
      throwUserError(fmt::format("[host program] {}{}{}: {}", subject(), program_.symbols.empty() ? "" : " with ",
                                 joined(program_.symbols, ", ", given), e.what()));
    }
  }

  TensorSizes tensor(const TensorPlan& t) const {
    const auto subject = [&] {
      return fmt::format("T{} {}[{}]", t.val, name(t.dtype), joined(t.sizes, ", ", &IntExpr::toString));
    };
    return naming(subject, [&] {
      return TensorSizes{.sizes = mapped(t.sizes, [this](const IntExpr& e) { return countOf(e, "the size"); }),
                         .strides = mapped(t.strides, [this](const IntExpr& e) { return valueOf(e); }),
                         .bytes = countOf(t.bytes, "the number of bytes")};
    });
  }

  StepSizes step(const Step& s) {
    return naming([&] { return s.name; },
                  [&] {
                    StepSizes result{.parts = countOf(s.launch.parts, "the number of parts"),
                                     .launch = mapped(s.launch.sizes, [this](const IntExpr& e) { return known(e); })};
                    for (const Workspace& w : s.workspaces) {
                      result.workspaces.push_back({.bytes = countOf(w.bytes, "the number of bytes of a workspace")});
                    }
                    if (s.kind == HostStepKind::Launch && s.launch.kernel != nullptr) {
                      countScratch(s.launch, result.launch);
                    }
                    if (s.kind == HostStepKind::Routine) {
                      const Routine& called = routine(s.routine);
                      if (!result.workspaces.empty()) {
                        result.workspaces[0].bytes = called.workspaceBytes();
                      }
                    }
                    if (s.kind == HostStepKind::Communicate) {
                      result.comm = communication(s.comm);
                      if (s.comm.isCombined) {
                        result.workspaces.back().bytes = combinedBytes(s.comm, result.comm);
                      }
                    }
                    return result;
                  });
  }

  int64_t combinedBytes(const CommCall& c, const CommSizes& sizes) const {
    return program_.device->info().combinedBytes({c.kind, c.dtype, c.reduce},
                                                 sizes.counts.empty() ? sizes.count : std::ranges::max(sizes.counts),
                                                 std::ssize(c.team.ranks));
  }

  const Routine& routine(int64_t number) {
    std::shared_ptr<const Routine>& made = result_.routines[number];
    if (made == nullptr) {
      made = routineOf(program_.routines[number]);
    }
    return *made;
  }

  // Made for the op with these sizes.
  std::shared_ptr<const Routine> routineOf(const RoutineCall& call) const {
    if (call.ofConstants != nullptr) {
      return call.ofConstants;
    }
    Fusion sized;
    FusionCloner cloner(
        *program_.fusion, sized, [this](const IntExpr& e) { return e.substitute(valuesIn(values_)); },
        FusionCloner::Numbers::Kept);
    const RoutineCall sizedCall{.layouts = substitute(call.layouts, valuesIn(values_)),
                                .coordinates = call.coordinates};
    return routineFor(*program_.device, sizedCall, *cloner.clone(call.op));
  }

  // Over the symbols of run-time integers, which each call gives.
  IntExpr known(const IntExpr& e) const {
    if (e.isConst()) {
      return e;
    }
    std::optional<IntExpr>& known = substituted_[{e.terms().data(), e.constantTerm()}];
    if (!known) {
      const auto valueIn = [this](std::string_view name) -> std::optional<IntExpr> {
        const std::string symbol(name);
        return program_.symbols.contains(symbol) ? std::optional<IntExpr>(values_.at(symbol)) : std::nullopt;
      };
      known = e.substitute(valueIn);
    }
    return *known;
  }

  void countScratch(const LaunchPlan& l, const std::vector<IntExpr>& sizes) {
    std::vector<uint64_t> slots(l.tensors.size(), 0);
    for (const IntExpr& e : sizes) {
      slots.push_back(e.isConst() ? std::bit_cast<uint64_t>(e.constValue()) : 0);
    }
    slots.resize(slots.size() + l.scalars.size());
    result_.scratchBytes = std::max(result_.scratchBytes, program_.device->scratchBytes(*l.kernel, slots));
  }

  CommSizes communication(const CommCall& c) const {
    const auto count = [this](const IntExpr& e) { return countOf(e, "the count"); };
    CommSizes result{.count = count(c.count),
                     .root = known(c.root),
                     .counts = mapped(c.counts, count),
                     .received = mapped(c.received, count),
                     .pack = copyOf(packing, c.pack, c.dtype),
                     .unpack = copyOf(unpacking, c.unpack, c.dtype),
                     .bytesReceived = countOf(c.bytesReceived, "the number of bytes received"),
                     .program = programNumber(identityFor(program_.identity, values_), c.number)};
    int64_t space = 0;
    const auto messages = [&](const auto& copying, const std::vector<CommCall::Message>& some) {
      return mapped(some, [&](const CommCall::Message& m) {
        BlockCopy block = copyOf(copying, m.block, c.dtype);
        const int64_t bytes = block.isOnePiece() ? 0 : block.bytes;
        return CommSizes::Message{std::move(block), std::exchange(space, addExact(space, bytes))};
      });
    };
    result.sends = messages(packing, c.sends);
    result.receives = messages(unpacking, c.receives);
    const BlockCopy from = copyOf(packing, c.keptFrom, c.dtype);
    const BlockCopy to = copyOf(unpacking, c.keptTo, c.dtype);
    check(from.bytes == to.bytes,
          "the kept block has {} bytes in the operand and {} in the result, expected equal ones", from.bytes, to.bytes);
    result.kept = directCopy(from, to);
    return result;
  }

  template <class Copying>
  BlockCopy copyOf(const Copying& copying, const TensorBlocks& blocks, DataType dtype) const {
    const BlockParts known = partsOf(blocks, [this](const IntExpr& e) { return valueOf(e); });
    return copying(known.parts, known.sizes, dataTypeSize(dtype));
  }

  // A block has the bytes of its workspace or tensor.
  void packArena() {
    result_.arena = mapped(program_.arena, [this](const ArenaBlock& b) {
      return MemoryBlock{.bytes = valueOf(b.bytes), .firstStep = b.firstStep, .lastStep = b.lastStep};
    });
    auto ofWorkspace = result_.arena.begin();
    overWorkspaces([&](const Workspace& plan, WorkspaceSizes& w) {
      if (plan.zeroed) {
        w.offset = result_.zeroedBytes;
        result_.zeroedBytes = addExact(result_.zeroedBytes, MemoryBlock{.bytes = w.bytes}.end());
      } else {
        (ofWorkspace++)->bytes = w.bytes;
      }
    });
    result_.arenaBytes = planMemory(result_.arena);
    auto block = result_.arena.begin();
    overWorkspaces([&](const Workspace& plan, WorkspaceSizes& w) {
      if (!plan.zeroed) {
        w.offset = (block++)->offset;
      }
    });
    for (; block != result_.arena.end(); ++block) {
      result_.tensors[program_.arena[block - result_.arena.begin()].tensor].offset = block->offset;
    }
    for (const int64_t t : indices(program_.tensors)) {
      result_.tensors[t].offset = result_.tensors[program_.storageOf(t)].offset;
    }
  }

  void overWorkspaces(const std::function<void(const Workspace&, WorkspaceSizes&)>& use) {
    for (const int64_t i : indices(program_.steps)) {
      for (const int64_t k : indices(program_.steps[i].workspaces)) {
        use(program_.steps[i].workspaces[k], result_.steps[i].workspaces[k]);
      }
    }
  }

  void countPeak() {
    const auto bytesOfInput = [this](int64_t t) { return t < 0 ? 0 : result_.tensors[t].bytes; };
    const auto bytesOfOutput = [this](int64_t i) {
      return program_.aliasOf[i] ? 0 : result_.tensors[program_.outputs[i]].bytes;
    };
    result_.peakBytes = addExact(result_.arenaBytes, addExact(sumExact(program_.inputs, bytesOfInput),
                                                              sumExact(indices(program_.outputs), bytesOfOutput)));
  }

  // An expression by the address of its terms and its constant.
  struct Key {
    const IntTerm* terms;
    int64_t constant;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HashOfKey {
    size_t operator()(const Key& k) const { return hashCombine(std::bit_cast<uintptr_t>(k.terms), k.constant); }
  };

  const HostProgram& program_;
  const Values& values_;
  ProgramSizes result_;
  // Never iterated. Null: the evaluation has failed.
  mutable std::unordered_map<Key, std::optional<int64_t>, HashOfKey> evaluated_;
  mutable std::unordered_map<Key, std::optional<IntExpr>, HashOfKey> substituted_;
};

}  // namespace

ProgramSizes sizesOf(const HostProgram& program, const Values& values) { return Evaluation(program, values).run(); }

std::shared_ptr<const ProgramSizes> sizesFor(const HostProgram& program, const Values& values) {
  return program.constant != nullptr ? program.constant
                                     : std::make_shared<const ProgramSizes>(sizesOf(program, values));
}

}  // namespace meshfuse
