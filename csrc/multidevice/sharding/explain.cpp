#include "multidevice/sharding/explain.h"

#include <fmt/core.h>

#include "ir/fusion.h"
#include "multidevice/sharding/plan_options.h"
#include "multidevice/sharding/relation.h"

namespace meshfuse {

namespace {

std::string nameOf(const Val* val) { return val->Val::toString(); }

void addSteps(const Expr* e, ShardingReport& report) {
  const TensorView* from = e->input(0)->asTensor();
  const ShardState held = shardState(from);
  const ShardState wanted = shardState(e->tensorOutput());
  if (held.mesh.empty() || wanted.mesh.empty()) {
    return;
  }
  const std::shared_ptr<const RedistributionPlan> plan = planIn(from->fusion(), held, wanted);
  for (const CommStep& step : plan->steps) {
    report.steps.push_back(
        {nameOf(from), nameOf(e->output()), step.toString(), step.elements * dataTypeSize(from->dtype()), plan->note});
  }
}

}  // namespace

int64_t ShardingReport::bytes() const {
  int64_t total = 0;
  for (const StepNote& s : steps) {
    total += s.bytes;
  }
  return total;
}

std::string ShardingReport::toString() const {
  std::string text;
  for (const TensorNote& t : tensors) {
    text += fmt::format("{}: {}\n", t.tensor, t.sharding);
  }
  for (const EdgeNote& e : edges) {
    text += fmt::format("{} -> {}: {}: {}\n", e.producer, e.consumer, e.relation, e.reason);
  }
  for (const StepNote& s : steps) {
    text += fmt::format("{} -> {}: {}, {} bytes{}\n", s.producer, s.consumer, s.step, s.bytes,
                        s.note.empty() ? "" : " (" + s.note + ")");
  }
  return text;
}

ShardingReport explainSharding(const Fusion& fusion) {
  ShardingReport report;
  for (const TensorView* tv : fusion.tensors()) {
    if (tv->hasDeviceMesh()) {
      report.tensors.push_back({nameOf(tv), shardState(tv).toString()});
    }
  }
  for (const Expr* e : fusion.exprs()) {
    for (size_t k = 0; e->output()->isTensor() && k < e->inputs().size(); k++) {
      if (!e->input(static_cast<int>(k))->isTensor()) {
        continue;
      }
      const Edge edge = edgeRelation(e, static_cast<int>(k), e->tensorOutput());
      if (edge.relation != EdgeRelation::Aligned) {
        report.edges.push_back({nameOf(e->input(static_cast<int>(k))), nameOf(e->output()),
                                std::string(name(edge.relation)), edge.reason});
      }
    }
    if (e->kind() == ExprKind::Redistribute) {
      addSteps(e, report);
    }
  }
  return report;
}

}  // namespace meshfuse
