#include "autoplan/annotate.h"

#include <algorithm>
#include <memory>
#include <set>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "preseg_passes/table.h"

namespace meshfuse {

namespace {

const Placement& placementIn(const PlanGraph& graph, const std::vector<int64_t>& choices, int64_t tensor) {
  const int64_t node = graph.nodeOf.at(tensor);
  return graph.nodes[node].placements[choices[node]];
}

// The tensors that propagation shards otherwise than planned if these are annotated, in order of definition.
std::vector<int64_t> differing(const Fusion& concrete, const PlanGraph& graph, const std::vector<int64_t>& choices,
                               const std::set<int64_t>& annotated) {
  const std::unique_ptr<Fusion> copy = concrete.clone();
  for (const int64_t id : annotated) {
    annotate(copy->val(id)->asTensor(), placementIn(graph, choices, id), graph.mesh);
  }
  PassContext context(*copy);
  runPassesBeforeSizes(*copy, context);
  std::vector<int64_t> found;
  for (const TensorView* tv : copy->tensors()) {
    if (graph.nodeOf.contains(tv->id()) && !annotated.contains(tv->id()) && tv->hasDeviceMesh() &&
        placementOf(shardState(tv)) != placementIn(graph, choices, tv->id())) {
      found.push_back(tv->id());
    }
  }
  return found;
}

}  // namespace

void annotate(TensorView* tv, const Placement& placement, const DeviceMesh& mesh) {
  const auto isConstant = [](const IntExpr& extent) { return extent.isConst(); };
  if (std::ranges::all_of(tv->shape(), isConstant)) {
    setShardState(tv, stateOf(placement, tv->constantShape(), mesh));
    return;
  }
  tv->setDeviceMesh(mesh);
  const std::vector<IterDomain*>& logical = tv->getLogicalDomain();
  int64_t stored = std::ssize(tv->noReductions());
  for (int64_t loop = std::ssize(logical) - 1; loop >= 0; loop--) {
    if (logical[loop]->isReduction()) {
      continue;
    }
    stored--;
    int64_t at = loop;
    for (int64_t axis = 0; axis < std::ssize(placement); axis++) {
      if (placement[axis] == stored) {
        tv->outer_split(at, mesh.axisSize(axis));
        tv->parallelize(at++, mesh.typeOf(axis));
      }
    }
  }
}

std::vector<int64_t> tensorsToAnnotate(const Fusion& concrete, const PlanGraph& graph,
                                       const std::vector<int64_t>& choices) {
  std::set<int64_t> annotated;
  for (const Val* in : concrete.inputs()) {
    if (in->isTensor() && !in->asTensor()->hasDeviceMesh()) {
      annotated.insert(in->id());
    }
  }
  std::set<int64_t> fixed;  // by the user, or by the input in whose memory an output is
  for (const TensorView* tv : concrete.tensors()) {
    if (tv->hasDeviceMesh()) {
      fixed.insert(tv->id());
    }
  }
  for (const auto& [output, input] : concrete.aliases()) {
    fixed.insert(output->id());
  }
  // First results of products: most other tensors follow from them and from the inputs.
  for (const bool all : {false, true}) {
    for (const int64_t id : differing(concrete, graph, choices, annotated)) {
      const Expr* e = concrete.val(id)->definition();
      if (!fixed.contains(id) && e != nullptr && (all || isContraction(*e))) {
        annotated.insert(id);
      }
    }
  }
  return {annotated.begin(), annotated.end()};
}

}  // namespace meshfuse
