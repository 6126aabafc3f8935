// A compiled program and what it assumes; immutable, used by several threads at once.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "exec/argument_facts.h"
#include "exec/compile.h"

namespace meshfuse {

class Binding;

class Plan {
 public:
  Plan(std::vector<ArgumentFacts> facts, CompiledProgram compiled);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const std::vector<ArgumentFacts>& facts() const { return facts_; }
  const CompiledProgram& compiled() const { return compiled_; }
  const HostProgram& host() const { return *compiled_.host; }
  // Whether the global program moves anything between ranks; for some sizes, such as none, this plan may not.
  bool redistributes() const;
  // Whether some output takes the place of an input.
  bool writesInputs() const { return writesInputs_; }
  // Whether peers may read the output where it lies.
  bool outputCommunicates(size_t output) const { return outputCommunicates_[output]; }
  // Of an output of which ranks have uneven parts: the sizes of the whole; else empty.
  const std::vector<int64_t>& unevenWhole(size_t output) const { return unevenWholes_[output]; }

  // Whether a run has been compared with the reference interpreter.
  std::atomic<bool> verified{false};
  // Bindings that no call uses. The cache's, under its lock.
  std::vector<std::unique_ptr<Binding>> idle;

 private:
  std::vector<ArgumentFacts> facts_;
  CompiledProgram compiled_;
  bool writesInputs_ = false;
  std::vector<bool> outputCommunicates_;
  std::vector<std::vector<int64_t>> unevenWholes_;
};

}  // namespace meshfuse
