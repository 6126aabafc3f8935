// Plan: a compiled program with the sizes of a call, and the argument facts that it holds for; immutable, used by several threads at once. The
// plans of the shapes of a class have one program.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "exec/argument_facts.h"
#include "exec/planned_program.h"

namespace meshfuse {

class Binding;
struct CompiledProgram;
struct HostProgram;
struct ProgramSizes;

class Plan {
 public:
  // globalSizes: of the arguments; values: of the symbols of the program; sizes: the program's for these values.
  Plan(std::vector<ArgumentFacts> facts, std::vector<std::vector<int64_t>> globalSizes,
       std::shared_ptr<const CompiledProgram> compiled, AgreedPlan agreed, const SymbolValues& values,
       std::shared_ptr<const ProgramSizes> sizes);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const std::vector<ArgumentFacts>& facts() const { return facts_; }
  const std::vector<std::vector<int64_t>>& globalSizes() const { return globalSizes_; }
  // True if the plan may be used for a call with these arguments.
  bool holdsFor(std::span<const Argument> inputs) const;
  // Of all shapes of a class.
  const std::shared_ptr<const CompiledProgram>& compiled() const { return compiled_; }
  const HostProgram& host() const { return host_; }
  // Of this shape.
  const std::shared_ptr<const ProgramSizes>& sizes() const { return sizes_; }
  const AgreedPlan& agreed() const { return agreed_; }
  // Of the symbols of the program, in this shape.
  const SymbolValues& values() const { return values_; }
  // The program with the sizes of this shape in place of symbols, to look at; its kernels are those of the class.
  std::shared_ptr<const CompiledProgram> ofShape() const;
  // Whether some output aliases an input.
  bool writesInputs() const { return writesInputs_; }
  // Whether peers may read the output's memory.
  bool outputCommunicates(int64_t output) const { return outputCommunicates_[output]; }
  // The global shape of an output with uneven shards, or without a shard on this rank; else empty.
  const std::vector<int64_t>& unevenGlobalShape(int64_t output) const { return unevenGlobalShapes_[output]; }

  // Whether a run has been compared with the reference interpreter.
  std::atomic<bool> verified{false};
  // Bindings that no call uses; guarded by the lock of the plan cache.
  std::vector<std::unique_ptr<Binding>> idle;

 private:
  std::vector<ArgumentFacts> facts_;
  std::vector<std::vector<int64_t>> globalSizes_;
  std::shared_ptr<const CompiledProgram> compiled_;
  const HostProgram& host_;
  AgreedPlan agreed_;
  SymbolValues values_;
  std::shared_ptr<const ProgramSizes> sizes_;
  bool isForDefaultDevice_ = false;  // no argument says where it runs
  bool writesInputs_ = false;
  std::vector<bool> outputCommunicates_;
  std::vector<std::vector<int64_t>> unevenGlobalShapes_;
};

}  // namespace meshfuse
