#include "host/program.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "host/scalars.h"
#include "ir/fusion.h"

namespace meshfuse {

std::string_view name(HostStepKind kind) {
  constexpr std::string_view kNames[] = {"kernel", "library", "communicate", "copy", "reference"};
  return kNames[static_cast<int64_t>(kind)];
}

namespace {

void addSymbols(std::map<std::string, SymbolFacts>& symbols, const IntExpr& e) {
  for (const IntTerm& term : e.terms()) {
    for (const IntAtomPtr& factor : term.factors) {
      if (factor->kind == AtomKind::Symbol) {
        symbols.try_emplace(factor->key, factor->facts);
      }
      std::ranges::for_each(factor->args, [&](const IntExpr& arg) { addSymbols(symbols, arg); });
    }
  }
}

void addSymbols(std::map<std::string, SymbolFacts>& symbols, std::span<const IntExpr> some) {
  std::ranges::for_each(some, [&](const IntExpr& e) { addSymbols(symbols, e); });
}

void addSymbols(std::map<std::string, SymbolFacts>& symbols, const TensorBlocks& blocks) {
  addSymbols(symbols, blocks.sizes);
  for (const Block& block : blocks.blocks) {
    for (const std::vector<SymbolicRun>& dim : block.dims) {
      for (const SymbolicRun& run : dim) {
        addSymbols(symbols, std::array{run.start, run.count, run.step});
      }
    }
  }
}

void addSymbols(std::map<std::string, SymbolFacts>& symbols, const CommCall& c) {
  addSymbols(symbols, std::array{c.count, c.bytesReceived});
  addSymbols(symbols, c.counts);
  addSymbols(symbols, c.received);
  for (const TensorBlocks* blocks : {&c.pack, &c.unpack, &c.keptFrom, &c.keptTo}) {
    addSymbols(symbols, *blocks);
  }
  for (const auto* messages : {&c.sends, &c.receives}) {
    std::ranges::for_each(*messages, [&](const CommCall::Message& m) { addSymbols(symbols, m.block); });
  }
}

}  // namespace

std::map<std::string, SymbolFacts> symbolsOf(const HostProgram& program) {
  std::map<std::string, SymbolFacts> ofSizes;
  std::map<std::string, SymbolFacts> ofLaunches;
  for (const TensorPlan& t : program.tensors) {
    addSymbols(ofSizes, t.sizes);
    addSymbols(ofSizes, t.strides);
    addSymbols(ofSizes, t.bytes);
  }
  for (const Step& s : program.steps) {
    addSymbols(ofSizes, s.launch.parts);
    std::ranges::for_each(s.workspaces, [&](const Workspace& w) { addSymbols(ofSizes, w.bytes); });
    addSymbols(ofSizes, s.comm);
    addSymbols(ofLaunches, s.launch.sizes);
    addSymbols(ofLaunches, s.comm.root);
  }
  for (const auto& [name, facts] : ofLaunches) {
    if (program.fusion == nullptr || !isRunTimeInteger(*program.fusion, name)) {
      ofSizes.try_emplace(name, facts);
    }
  }
  return ofSizes;
}

const ProgramSizes& HostProgram::sizes() const {
  invariant(constant != nullptr, "[host program] sizes depend on {} symbols; a binding has the numbers",
            symbols.size());
  return *constant;
}

uint64_t identityFor(uint64_t identity, const std::map<std::string, int64_t>& values) {
  for (const auto& [symbol, value] : values) {
    identity = hashCombine(hashCombine(identity, hashText(symbol).lo), static_cast<uint64_t>(value));
  }
  return identity;
}

std::shared_ptr<const Routine> routineFor(const Device& device, const RoutineCall& call, const Expr& op) {
  const auto valueOf = [&](const IntExpr& offset) {
    return offset.substitute(valuesIn(call.coordinates)).constValue();
  };
  return device.routine(op, {.layouts = call.layouts, .valueOf = valueOf});
}

std::string describe(const Step& step) {
  if (!step.reference || step.kind == HostStepKind::Communicate) {
    return step.name;
  }
  try {
    return fmt::format("{}: {}", step.name, joined(step.reference.fusion()->exprs(), ", ", [](const Expr* e) {
                         return std::string(e->opName());
                       }));
  } catch (const std::exception&) {  // errors name steps: they must not become other errors
    return step.name;
  }
}

BlockForm CommCall::form() const {
  return isPermutation ? BlockForm::Permutation : counts.empty() ? BlockForm::Equal : BlockForm::Counted;
}

std::string HostProgram::toString() const {
  std::string text =
      constant != nullptr
          ? fmt::format("host program, arena {} bytes, peak {} bytes\n", constant->arenaBytes, constant->peakBytes)
          : fmt::format("host program of any {}\n", fmt::join(std::views::keys(symbols), ", "));
  const auto placeOf = [this](int64_t t) {
    const TensorPlan& plan = tensors[t];
    if (plan.place != Place::Arena) {
      return fmt::format("{} {}", plan.place == Place::Input ? "input" : "output", plan.index);
    }
    return constant != nullptr ? fmt::format("arena + {}", constant->tensors[t].offset)
                               : fmt::format("arena, {} bytes", plan.bytes.toString());
  };
  const auto listed = [&](const std::vector<int64_t>& some) {
    return joined(some, ", ", [&](int64_t t) { return fmt::format("T{} ({})", tensors[t].val, placeOf(t)); });
  };
  for (const Step& s : steps) {
    std::string detail;
    if (s.kind == HostStepKind::Launch) {
      detail = fmt::format(", {} parts", s.launch.parts.toString());
    } else if (s.kind == HostStepKind::Communicate) {
      detail = fmt::format(" among [{}], {} bytes received", fmt::join(s.comm.team.ranks, ", "),
                           s.comm.bytesReceived.toString());
    }
    text += fmt::format("  {}: {} -> {}{}\n", s.name, listed(s.reads), listed(s.writes), detail);
  }
  return text;
}

void sayingMemory(const HostProgram& program, const ProgramSizes& sizes, const std::function<void()>& allocate) {
  try {
    allocate();
  } catch (const UserError& e) {
    const auto largest = std::ranges::max_element(sizes.tensors, {}, &TensorSizes::bytes);
    if (largest == sizes.tensors.end()) {
      throw;
    }
    const TensorPlan& plan = program.tensors[largest - sizes.tensors.begin()];
    throwUserError(
        fmt::format("{}\nthe program takes {} bytes: arguments, results and an arena of {} bytes; its largest "
                    "tensor is T{} {}[{}] of {} bytes",
                    e.what(), sizes.peakBytes, sizes.arenaBytes, plan.val, name(plan.dtype),
                    fmt::join(largest->sizes, ", "), largest->bytes));
  }
}

}  // namespace meshfuse
