#include "exec/plan.h"

#include <algorithm>

#include "host/executor.h"

namespace meshfuse {

namespace {

std::vector<bool> outputsThatCommunicate(const HostProgram& host) {
  std::vector<bool> result(host.outputs.size());
  for (const Step& step : host.steps) {
    if (step.kind != HostStepKind::Communicate) {
      continue;
    }
    for (const auto* list : {&step.reads, &step.writes}) {
      for (int t : *list) {
        const TensorPlan& p = host.tensors[static_cast<size_t>(t)];
        if (p.place == Place::Output) {
          result[static_cast<size_t>(p.index)] = true;
        }
      }
    }
  }
  return result;
}

}  // namespace

Plan::Plan(std::vector<ArgumentFacts> facts, CompiledProgram compiled)
    : facts_(std::move(facts)),
      compiled_(std::move(compiled)),
      writesInputs_(std::ranges::any_of(host().aliasOf, [](const auto& alias) { return alias.has_value(); })),
      outputCommunicates_(outputsThatCommunicate(host())) {}

Plan::~Plan() = default;

}  // namespace meshfuse
