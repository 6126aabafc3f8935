#include "autoplan/annotate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "analysis/pass_context.h"
#include "base/hash.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/fusion_cloner.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/table.h"

namespace meshfuse {

namespace {

// Tensors of a program in which annotations to leave out are searched. In larger ones annotations are searched in one layer of each kind.
constexpr int64_t kSmallProgram = 1000;
constexpr int64_t kSurroundings = 8;  // tensors whose surroundings are equal up to so many ops away count as alike

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

// What propagation makes of some annotations.
struct Outcome {
  std::vector<Difference> differences;  // in order of definition
  PropagatedProgram propagated;
};

// The choices of a plan, and the settings of the annotated program.
struct Planned {
  const PlanGraph& graph;
  const std::vector<int64_t>& choices;
  const PlannerSettings& planner;
};

// If these tensors, and inputs without a mesh, are annotated. `program`: the planned one, or a part of it.
Outcome outcomeOf(const Fusion& program, const Planned& plan, const std::set<int64_t>& annotated) {
  const auto& [graph, choices, planner] = plan;
  const std::shared_ptr<Fusion> copy = program.clone();
  for (TensorView* tv : copy->tensors()) {
    if (annotated.contains(tv->id()) || (tv->isFusionInput() && !tv->hasDeviceMesh())) {
      annotate(tv, placementIn(graph, choices, tv->id()), graph.mesh);
    }
  }
  if (std::ranges::any_of(copy->tensors(),
                          &TensorView::hasDeviceMesh)) {  // else the costs of its axes would be refused
    copy->setPlanner(planner);
  }
  const auto context = std::make_shared<PassContext>(*copy, PassSettings{.verify = false});
  runPassesBeforeSizes(*copy, *context);
  ShardStateMemo states;
  std::vector<Difference> found;
  for (const TensorView* tv : copy->tensors()) {
    const auto node = graph.nodeOf.find(tv->id());
    if (node == graph.nodeOf.end() || annotated.contains(tv->id()) || tv->isFusionInput()) {
      continue;
    }
    const Placement& planned = placementIn(graph, choices, tv->id());
    std::optional<Placement> got = placementOf(states.state(tv));
    if (got != planned) {
      const TensorView* original = program.val(tv->id())->asTensor();
      found.push_back({tv->id(), original->definition(), planned, std::move(got), kindOf(graph, original)});
    }
  }
  return {std::move(found), {copy, context}};
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

// Equal numbers for tensors that are planned alike, as are all tensors up to kSurroundings ops away. Aliases of outputs are not compared: the
// check of the whole program finds what that misses, with another propagation.
std::map<int64_t, uint64_t> kindsBySurroundings(const Fusion& concrete, const std::vector<Expr*>& exprs,
                                                const PlanGraph& graph, const std::vector<int64_t>& choices) {
  std::map<const void*, uint64_t> numbers;  // of strategies, in order of appearance
  std::vector<uint64_t> kinds(concrete.numVals(), 0);
  for (const TensorView* tv : concrete.tensors()) {
    const Expr* e = tv->definition();
    uint64_t kind = hash64(e == nullptr ? "" : e->opName(), static_cast<uint64_t>(tv->dtype()));
    kind = hashCombine(kind, tv->hasDeviceMesh());
    for (const int64_t extent : tv->constantShape()) {
      kind = hashCombine(kind, extent);
    }
    const PlanNode& node = graph.nodes[graph.nodeOf.at(tv->id())];
    for (const int8_t dim : placementIn(graph, choices, tv->id())) {
      kind = hashCombine(kind, static_cast<uint64_t>(dim));
    }
    if (node.head == tv->id() && node.strategies >= 0) {
      const auto* strategies = graph.nodes[node.strategies].choices.get();
      kind = hashCombine(kind, numbers.try_emplace(strategies, numbers.size()).first->second);
    }
    kinds[tv->id()] = kind;
  }
  for (int64_t round = 0; round < kSurroundings; round++) {
    std::vector<uint64_t> next = kinds;
    for (const Expr* e : exprs) {
      uint64_t all = 0;
      for (const Val* in : e->inputs()) {
        all = hashCombine(all, kinds[in->id()]);
      }
      for (const Val* out : e->outputs()) {
        all = hashCombine(all, kinds[out->id()]);
      }
      for (const int64_t k : indices(e->outputs())) {
        uint64_t& kind = next[e->outputs()[k]->id()];
        kind = hashCombine(hashCombine(kind, all), k);
      }
      for (const int64_t k : indices(e->inputs())) {
        next[e->inputs()[k]->id()] += hashCombine(all, k);  // whatever the order of its readers
      }
    }
    kinds = std::move(next);
  }
  std::map<int64_t, uint64_t> result;
  for (const TensorView* tv : concrete.tensors()) {
    result[tv->id()] = kinds[tv->id()];
  }
  return result;
}

// The ops of a program that are like no earlier one: of repeated layers, the first. Tensors keep their ids; what other ops make is input.
struct UnlikeOps {
  std::unique_ptr<Fusion> program = std::make_unique<Fusion>();
  std::set<int64_t> whole;  // tensors all of whose readers are there
};

UnlikeOps unlikeOps(const Fusion& concrete, const std::vector<Expr*>& exprs, const std::map<int64_t, uint64_t>& kinds) {
  UnlikeOps result;
  std::set<uint64_t> seen;
  std::set<const Expr*> taken;
  for (const Expr* e : exprs) {
    if (!e->output()->isTensor() || seen.insert(kinds.at(e->output()->id())).second) {
      taken.insert(e);
    }
  }
  Fusion& to = *result.program;
  to.setPlanner(concrete.planner());
  FusionCloner cloner(concrete, to, {}, FusionCloner::Numbers::Kept);
  for (const Expr* e : exprs) {
    if (!taken.contains(e)) {
      continue;
    }
    for (Val* in : e->inputs()) {
      const bool isMade = in->definition() != nullptr && taken.contains(in->definition());
      if (!isMade && (in->isTensor() || in->isFusionInput()) && cloner.find(in) == nullptr) {
        to.addInput(cloner.clone(in));
      }
    }
    cloner.clone(e);
    for (Val* out : e->outputs()) {
      const std::vector<Expr*> uses = concrete.uses(out);
      const auto isTaken = [&](const Expr* use) { return taken.contains(use); };
      if (std::ranges::all_of(uses, isTaken)) {
        result.whole.insert(out->id());
      }
      if (out->isTensor() && (uses.empty() || !std::ranges::all_of(uses, isTaken))) {
        to.addOutput(cloner.find(out));
      }
    }
  }
  return result;
}

// Tensors among which propagation decides otherwise if all that it reaches from other layers is as planned.
std::set<int64_t> annotatedInLayers(const Fusion& concrete, const Planned& plan, const std::set<int64_t>& fixed) {
  const std::vector<Expr*> exprs = concrete.exprs();
  const std::map<int64_t, uint64_t> kinds = kindsBySurroundings(concrete, exprs, plan.graph, plan.choices);
  const UnlikeOps ops = unlikeOps(concrete, exprs, kinds);
  std::set<uint64_t> annotatedKinds;
  std::set<int64_t> annotated;
  for (bool grows = true; grows;) {
    std::vector<Difference> all = outcomeOf(*ops.program, plan, annotated).differences;
    std::erase_if(all, [&](const Difference& d) { return fixed.contains(d.id) || !ops.whole.contains(d.id); });
    const size_t before = annotatedKinds.size();
    for (const int64_t id : all.empty() ? std::vector<int64_t>() : causes(all)) {
      annotatedKinds.insert(kinds.at(id));
    }
    for (const auto& [id, kind] : kinds) {
      if (annotatedKinds.contains(kind) && !fixed.contains(id)) {
        annotated.insert(id);
      }
    }
    grows = annotatedKinds.size() != before;
  }
  return annotated;
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
    const std::vector<int64_t> axes =
        filtered(indices(placement), [&](int64_t axis) { return placement[axis] == stored; });
    if (axes.empty()) {
      continue;
    }
    // split once by all axes: a dim that they do not divide is padded once
    tv->outer_split(loop, productOf(axes, [&](int64_t axis) { return mesh.axisSize(axis); }));
    for (const int64_t k : indices(axes)) {
      if (k + 1 < std::ssize(axes)) {
        tv->outer_split(loop + k, mesh.axisSize(axes[k]));
      }
      tv->parallelize(loop + k, mesh.typeOf(axes[k]));
    }
  }
}

Annotations tensorsToAnnotate(const Fusion& concrete, const PlanGraph& graph, const std::vector<int64_t>& choices,
                              const PlannerSettings& planner) {
  const Planned plan{graph, choices, planner};
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
  const auto outcome = [&](const std::set<int64_t>& ids) {
    Outcome result = outcomeOf(concrete, plan, ids);
    std::erase_if(result.differences, [&](const Difference& d) { return fixed.contains(d.id); });
    return result;
  };
  if (std::ssize(graph.nodeOf) > kSmallProgram) {
    annotated.merge(annotatedInLayers(concrete, plan, fixed));
  }
  Outcome now = outcome(annotated);
  for (bool grows = true; !now.differences.empty() && grows;) {
    const size_t before = annotated.size();
    const std::vector<int64_t> more = causes(now.differences);
    annotated.insert(more.begin(), more.end());
    grows = annotated.size() != before;
    now = outcome(annotated);
  }
  const auto result = [&] { return Annotations{{annotated.begin(), annotated.end()}, std::move(now.propagated)}; };
  if (!now.differences.empty() || std::ssize(graph.nodeOf) > kSmallProgram) {
    return result();
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
    if (Outcome other = outcome(fewer); other.differences.empty()) {
      annotated = std::move(fewer);
      now = std::move(other);
    }
  }
  return result();
}

}  // namespace meshfuse
