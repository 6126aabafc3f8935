#include "exec/plan.h"

#include <algorithm>

#include "host/executor.h"
#include "ir/fusion.h"
#include "multidevice/sharding/local_indices.h"
#include "multidevice/sharding/window_fetch.h"

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

// Of outputs of which a part does not tell the whole.
std::vector<std::vector<int64_t>> unevenWholesOf(const Fusion& planned, int64_t rank) {
  std::vector<std::vector<int64_t>> wholes;
  for (const Val* out : planned.outputs()) {
    wholes.emplace_back();
    const ShardState state = shardState(out->asTensor());
    if (isRagged(state) || !holds(state.mesh, rank)) {
      for (const IntExpr& extent : out->asTensor()->shape()) {
        wholes.back().push_back(extent.constValue());
      }
    }
  }
  return wholes;
}

}  // namespace

Plan::Plan(std::vector<ArgumentFacts> facts, CompiledProgram compiled)
    : facts_(std::move(facts)),
      compiled_(std::move(compiled)),
      writesInputs_(std::ranges::any_of(host().aliasOf, [](const auto& alias) { return alias.has_value(); })),
      outputCommunicates_(outputsThatCommunicate(host())),
      unevenWholes_(unevenWholesOf(*compiled_.program.planned, host().rank)) {}

Plan::~Plan() = default;

bool Plan::redistributes() const {
  return std::ranges::any_of(compiled_.program.planned->exprs(),
                             [](const Expr* e) { return e->kind() == ExprKind::Redistribute || fetchesWindow(e); });
}

}  // namespace meshfuse
