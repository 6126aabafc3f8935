#include "exec/plan.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "host/executor.h"
#include "host/program.h"
#include "ir/fusion.h"
#include "multidevice/sharding/held_part.h"

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

// The global shapes of the outputs for which a shard does not determine them.
std::vector<std::vector<int64_t>> unevenGlobalShapesOf(const Fusion& planned, int64_t rank) {
  return mapped(planned.outputs(), [rank](const Val* out) {
    const ShardState state = shardState(out->asTensor());
    const bool isGiven = isRagged(state) || !holds(state.mesh, rank);
    return isGiven ? out->asTensor()->constantShape() : std::vector<int64_t>();
  });
}

}  // namespace

Plan::Plan(std::vector<ArgumentFacts> facts, CompiledProgram compiled)
    : facts_(std::move(facts)),
      compiled_(std::move(compiled)),
      isForDefaultDevice_(std::ranges::none_of(facts_, &ArgumentFacts::areOfTensor)),
      writesInputs_(std::ranges::any_of(host().aliasOf, [](const auto& alias) { return alias.has_value(); })),
      outputCommunicates_(outputsThatCommunicate(host())),
      unevenGlobalShapes_(unevenGlobalShapesOf(*compiled_.program.planned, host().rank)) {}

Plan::~Plan() = default;

bool Plan::holdsFor(std::span<const Argument> inputs) const {
  return hold(facts_, inputs) && (!isForDefaultDevice_ || host().deviceId == defaultDevice());
}

}  // namespace meshfuse
