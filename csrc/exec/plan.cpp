#include "exec/plan.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "exec/compile.h"
#include "host/executor.h"
#include "host/program.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

std::vector<bool> outputsThatCommunicate(const HostProgram& host) {
  std::vector<bool> result(host.outputs.size());
  for (const Step& step : host.steps) {
    if (step.kind != HostStepKind::Communicate) {
      continue;
    }
    for (const auto* list : {&step.reads, &step.writes}) {
      for (const int64_t t : *list) {
        const TensorPlan& p = host.tensors[t];
        if (p.place == Place::Output) {
          result[p.index] = true;
        }
      }
    }
  }
  return result;
}

// A segment of a class, as explanations read it: with the tensors and ops of the local program of a shape.
Segment segmentOf(const Segment& s, const Fusion& local, const SymbolValues& values) {
  const auto tensors = [&](const std::vector<TensorView*>& tvs) {
    return mapped(tvs, [&](const TensorView* tv) { return local.val(tv->id())->asTensor(); });
  };
  Segment result{.kind = s.kind, .inPlace = s.inPlace, .boundary = s.boundary, .joins = s.joins};
  result.group = {
      .fusion = &local,
      .exprs = mapped(s.group.exprs, [&](const Expr* e) { return local.val(e->output()->id())->definition(); }),
      .inputs = tensors(s.group.inputs),
      .outputs = tensors(s.group.outputs),
      .layouts = substitute(s.group.layouts, valuesIn(values)),
      .aliases = s.group.aliases};
  result.plan.kind = s.plan.kind;
  return result;
}

}  // namespace

Plan::Plan(std::vector<ArgumentFacts> facts, std::vector<std::vector<int64_t>> globalSizes,
           std::shared_ptr<const CompiledProgram> compiled, AgreedPlan agreed, const SymbolValues& values,
           std::shared_ptr<const ProgramSizes> sizes)
    : facts_(std::move(facts)),
      globalSizes_(std::move(globalSizes)),
      compiled_(std::move(compiled)),
      host_(*compiled_->host),
      agreed_(std::move(agreed)),
      values_(values),
      sizes_(std::move(sizes)),
      isForDefaultDevice_(std::ranges::none_of(facts_, &ArgumentFacts::areOfTensor)),
      writesInputs_(std::ranges::any_of(host_.aliasOf, [](const auto& alias) { return alias.has_value(); })),
      outputCommunicates_(outputsThatCommunicate(host_)),
      unevenGlobalShapes_(compiled_->program.ofRank.unevenGlobalShapes) {}

Plan::~Plan() = default;

std::shared_ptr<const CompiledProgram> Plan::ofShape() const {
  if (compiled_->host->constant != nullptr) {
    return compiled_;
  }
  const SegmentedProgram& program = compiled_->program;
  auto result = std::make_shared<CompiledProgram>();
  std::shared_ptr<const Fusion> local = concretize(*program.local, values_);
  static_cast<PlannedProgram&>(result->program) = program;
  result->program.agreedOn = program.agreedOn;
  result->program.layouts = substitute(program.layouts, valuesIn(values_));
  result->program.planned = plannedFor(*program.planned, values_);
  result->program.local = local;
  result->program.agreed = agreed_;
  for (const Segment& s : program.segments) {
    result->program.segments.push_back(segmentOf(s, *local, values_));
  }
  auto host = std::make_shared<HostProgram>(*compiled_->host);
  host->constant = sizes_;
  host->symbols.clear();
  result->host = host;
  return result;
}

bool Plan::holdsFor(std::span<const Argument> inputs) const {
  return hold(facts_, inputs) && (!isForDefaultDevice_ || host().deviceId == defaultDevice());
}

}  // namespace meshfuse
