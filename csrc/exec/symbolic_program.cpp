#include "exec/symbolic_program.h"

#include <fmt/core.h>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "multidevice/sharding/axis_facts.h"
#include "preseg_passes/specialize.h"
#include "preseg_passes/table.h"

namespace meshfuse {

SymbolicProgram::SymbolicProgram(std::unique_ptr<Fusion> fusion) : written_(std::move(fusion)) {
  check(written_ != nullptr, "[specialize] got no fusion; pass one");
  propagated_ = written_->clone();
  PassContext context(*propagated_);
  guards_ = context.get<AxisFacts>().prover().facts();
  runPassesBeforeSizes(*propagated_, context);
  propagations_++;
  remarks_ = context.remarks();
}

SymbolicProgram::~SymbolicProgram() = default;

std::vector<std::string> SymbolicProgram::guards() const {
  return mapped(guards_, [](const Prover::Fact& g) {
    return fmt::format("{} divides {}", g.divisor.toString(), g.dividend.toString());
  });
}

std::vector<std::string> SymbolicProgram::failingGuards(const MeshSizes& sizes) const {
  std::vector<std::string> texts;
  for (const Prover::Fact& g : guards_) {
    const IntExpr divisor = g.divisor.substitute(valuesIn(sizes));
    if (divisor.isConst() && g.dividend.isConst() && !g.dividend.divisibleBy(divisor.constValue())) {
      texts.push_back(
          fmt::format("{} = {} does not divide {}", g.divisor.toString(), divisor.toString(), g.dividend.toString()));
    }
  }
  return texts;
}

std::shared_ptr<const Fusion> SymbolicProgram::at(const MeshSizes& sizes) {
  std::lock_guard lock(mutex_);
  if (!specialized_.contains(sizes)) {
    specialized_[sizes] = specialize(*propagated_, sizes, written_.get());
  }
  return specialized_.at(sizes);
}

std::shared_ptr<const Fusion> SymbolicProgram::forRanks(int64_t ranks, const MeshSizes& given) {
  return at(sizesForRanks(*propagated_, ranks, given));
}

int64_t SymbolicProgram::specializations() const {
  std::lock_guard lock(mutex_);
  return std::ssize(specialized_);
}

}  // namespace meshfuse
