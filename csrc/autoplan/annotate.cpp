#include "autoplan/annotate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "analysis/pass_context.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "preseg_passes/table.h"

namespace meshfuse {

namespace {

constexpr int64_t kSmallProgram = 1000;  // tensors of a program in which annotations to leave out are searched

const Placement& placementIn(const PlanGraph& graph, const std::vector<int64_t>& choices, int64_t tensor) {
  const int64_t node = graph.nodeOf.at(tensor);
  return graph.nodes[node].placements[choices[node]];
}

// The same for results of ops of repeated layers.
const void* kindOf(const PlanGraph& graph, const TensorView* tv) {
  const PlanNode& node = graph.nodes[graph.nodeOf.at(tv->id())];
  return node.head == tv->id() ? static_cast<const void*>(graph.nodes[node.strategies].choices.get()) : tv;
}

// A tensor that propagation shards otherwise than planned.
struct Difference {
  int64_t id = 0;
  const Expr* expr = nullptr;
  Placement planned;
  std::optional<Placement> got;
  const void* kind = nullptr;

  // Propagation only cut what the plan leaves whole.
  bool isFiner() const {
    return got && std::ranges::all_of(indices(planned), [&](int64_t axis) {
             return planned[axis] == kUncut || planned[axis] == (*got)[axis];
           });
  }
  bool isLike(const Difference& other) const {
    return kind == other.kind && planned == other.planned && got == other.got;
  }
};

// In order of definition, if these tensors are annotated.
std::vector<Difference> differences(const Fusion& concrete, const PlanGraph& graph, const std::vector<int64_t>& choices,
                                    const std::set<int64_t>& annotated) {
  const std::unique_ptr<Fusion> copy = concrete.clone();
  for (const int64_t id : annotated) {
    annotate(copy->val(id)->asTensor(), placementIn(graph, choices, id), graph.mesh);
  }
  PassContext context(*copy, {.verify = false});
  runPassesBeforeSizes(*copy, context);
  std::vector<Difference> found;
  for (const TensorView* tv : copy->tensors()) {
    const auto node = graph.nodeOf.find(tv->id());
    if (node == graph.nodeOf.end() || annotated.contains(tv->id()) || tv->isFusionInput()) {
      continue;
    }
    const Placement& planned = placementIn(graph, choices, tv->id());
    std::optional<Placement> got = placementOf(shardState(tv));
    if (got != planned) {
      const TensorView* original = concrete.val(tv->id())->asTensor();
      found.push_back({tv->id(), original->definition(), planned, std::move(got), kindOf(graph, original)});
    }
  }
  return found;
}

// The differences that no difference of an operand explains, and those like them in repeated layers.
std::vector<int64_t> causes(const std::vector<Difference>& all) {
  std::set<int64_t> differ;
  for (const Difference& d : all) {
    differ.insert(d.id);
  }
  std::vector<const Difference*> first;
  for (const bool finer : {false, true}) {
    for (const Difference& d : all) {
      const bool follows =
          std::ranges::any_of(d.expr->inputs(), [&](const Val* in) { return differ.contains(in->id()); });
      if (d.isFiner() == finer && !follows) {
        first.push_back(&d);
      }
    }
    if (!first.empty()) {
      break;
    }
  }
  if (first.empty()) {  // each follows one of the other kind
    first.push_back(&all.front());
  }
  std::vector<int64_t> ids;
  for (const Difference& d : all) {
    if (std::ranges::any_of(first, [&](const Difference* f) { return d.isLike(*f); })) {
      ids.push_back(d.id);
    }
  }
  return ids;
}

}  // namespace

void annotate(TensorView* tv, const Placement& placement, const DeviceMesh& mesh) {
  const auto isConstant = [](const IntExpr& extent) { return extent.isConst(); };
  if (!mesh.isSymbolic() && std::ranges::all_of(tv->shape(), isConstant)) {
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
  const std::set<int64_t> inputs = annotated;
  const auto left = [&](const std::set<int64_t>& ids) {
    std::vector<Difference> all = differences(concrete, graph, choices, ids);
    std::erase_if(all, [&](const Difference& d) { return fixed.contains(d.id); });
    return all;
  };
  std::vector<Difference> all = left(annotated);
  for (bool grows = true; !all.empty() && grows;) {
    const size_t before = annotated.size();
    const std::vector<int64_t> more = causes(all);
    annotated.insert(more.begin(), more.end());
    grows = annotated.size() != before;
    all = left(annotated);
  }
  if (!all.empty() || std::ssize(graph.nodeOf) > kSmallProgram) {
    return {annotated.begin(), annotated.end()};
  }
  // later annotations may imply earlier ones
  std::vector<std::vector<int64_t>> alike;
  std::map<std::pair<const void*, Placement>, size_t> places;
  for (const TensorView* tv : concrete.tensors()) {
    if (annotated.contains(tv->id()) && !inputs.contains(tv->id())) {
      const auto [place, isNew] =
          places.try_emplace({kindOf(graph, tv), placementIn(graph, choices, tv->id())}, alike.size());
      (isNew ? alike.emplace_back() : alike[place->second]).push_back(tv->id());
    }
  }
  for (const std::vector<int64_t>& ids : alike) {
    std::set<int64_t> fewer = annotated;
    for (const int64_t id : ids) {
      fewer.erase(id);
    }
    if (left(fewer).empty()) {
      annotated = std::move(fewer);
    }
  }
  return {annotated.begin(), annotated.end()};
}

}  // namespace meshfuse
