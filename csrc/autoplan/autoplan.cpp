#include "autoplan/autoplan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "autoplan/annotate.h"
#include "autoplan/least_memory.h"
#include "autoplan/pipeline.h"
#include "autoplan/plan_files.h"
#include "autoplan/plan_graph.h"
#include "autoplan/roles.h"
#include "autoplan/search.h"
#include "autoplan/unapplied_plan.h"
#include "base/error.h"
#include "base/ranges.h"
#include "ir/fusion.h"
#include "preseg_passes/specialize.h"

namespace meshfuse {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kForbidden = std::numeric_limits<double>::infinity();
constexpr double kBetter = 1e-4;  // part of the time by which a mesh with more axes must be faster
constexpr int64_t kMostAxes = 3;
constexpr int64_t kNamedTensors = 5;                // in an error about memory
constexpr auto kRefusal = std::chrono::seconds(5);  // that the least memory is searched for that error

// The mesh of the user's annotations, or none.
DeviceMesh annotatedMesh(const Fusion& fusion) {
  for (const TensorView* tv : fusion.tensors()) {
    if (tv->hasDeviceMesh()) {
      return tv->getDeviceMesh();
    }
  }
  return {};
}

// `annotated`: the mesh of the program; `asked`: axes that replace it.
std::vector<DeviceMesh> meshesFor(const DeviceMesh& annotated, const std::vector<DeviceMesh::Axis>& asked,
                                  const DistributedConfig& machines) {
  for (const DeviceMesh::Axis& axis : asked) {
    check(axis.size.has_value(), "[autoplan] mesh axis {} has no size; give one, at least 1", axis.name);
  }
  const DeviceMesh mesh = asked.empty() ? annotated : DeviceMesh::create(asked);
  if (mesh.empty()) {
    return candidateMeshes(machines.devices());
  }
  check(mesh.numDevices() == machines.devices(),
        "[autoplan] mesh {} has {} devices, the machines have {}: {} of {}; make the product of the axes {}",
        meshText(mesh), mesh.numDevices(), machines.devices(), machines.machines, machines.devicesPerMachine,
        machines.devices());
  check(mesh.numAxes() <= kMostAxes, "[autoplan] mesh {} has {} axes, expected at most {}", meshText(mesh),
        mesh.numAxes(), kMostAxes);
  return {mesh};
}

// Axes of symbolic size get the sizes in `asked`; the number of devices determines one that is not there.
std::unique_ptr<Fusion> withMeshSizes(const Fusion& fusion, const std::vector<DeviceMesh::Axis>& asked,
                                      const DistributedConfig& machines) {
  MeshSizes sizes;
  for (const DeviceMesh::Axis& axis : asked) {
    if (axis.size) {
      sizes[axis.name] = *axis.size;
    }
  }
  return specialize(fusion, sizesForRanks(fusion, machines.devices(), sizes), &fusion);
}

std::unique_ptr<Fusion> withSizes(const Fusion& fusion, const SymbolValues& sizes) {
  std::set<std::string> missing;
  for (const Val* in : fusion.inputs()) {
    if (in->isTensor()) {
      for (const IntExpr& extent : in->asTensor()->shape()) {
        for (const std::string& symbol : extent.symbols()) {
          if (!sizes.contains(symbol)) {
            missing.insert(symbol);
          }
        }
      }
    }
  }
  check(missing.empty(),
        "[autoplan] the symbols {} in the sizes of the inputs have no value; give OptimizationConfig::sizes, on the "
        "command line --size {}=VALUE",
        fmt::join(missing, ", "), missing.empty() ? "" : *missing.begin());
  std::unique_ptr<Fusion> concrete = concretize(fusion, sizes);
  for (const TensorView* tv : concrete->tensors()) {
    for (const IntExpr& extent : tv->shape()) {
      if (!extent.isConst()) {
        throwUserError(fmt::format("[autoplan] {} has the size {}, which has no value; give OptimizationConfig::sizes",
                                   tv->toString(), extent.toString()));
      }
    }
  }
  return concrete;
}

struct Candidate {
  PlanGraph graph;
  FoundPlan plan;
};

// If an input's choices are restricted to those for which `keep` holds; nothing if it has none.
std::optional<PlanGraph> restricted(const PlanGraph& graph, const Fusion& fusion,
                                    const std::function<bool(const TensorView*, const Placement&)>& keep) {
  PlanGraph result = graph;
  for (const Val* in : fusion.inputs()) {
    if (!in->isTensor() || in->asTensor()->hasDeviceMesh()) {
      continue;
    }
    const int64_t node = graph.nodeOf.at(in->id());
    bool any = false;
    for (int64_t k = 0; k < std::ssize(graph.nodes[node].placements); k++) {
      const bool keeps = keep(in->asTensor(), graph.nodes[node].placements[k]);
      any |= keeps;
      if (!keeps) {
        result.costs.costs[node][k] = kForbidden;
      }
    }
    if (!any) {
      return std::nullopt;
    }
  }
  return result;
}

bool isWhole(const Placement& p) {
  return std::ranges::all_of(p, [](int8_t dim) { return dim == kUncut; });
}

bool cutsOnly(const Placement& p, int8_t dim) {
  return std::ranges::all_of(p, [&](int8_t d) { return d == dim; });
}

class Planner {
 public:
  Planner(const Fusion& concrete, const DistributedConfig& machines, const OptimizationConfig& wishes,
          Deadline deadline)
      : concrete_(concrete), machines_(machines), wishes_(wishes), deadline_(deadline), roles_(concrete) {}

  Candidate best(const std::vector<DeviceMesh>& meshes) {
    std::optional<Candidate> best;
    for (const DeviceMesh& mesh : meshes) {
      PlanGraph graph = graphFor(mesh);
      std::optional<FoundPlan> found = searchPlan(graph, machines_.memoryPerDevice, deadline_);
      if (found && (!best || found->seconds < best->plan.seconds * (1 - kBetter))) {
        best = Candidate{std::move(graph), std::move(*found)};
      }
    }
    return best ? std::move(*best) : leastThatFits(meshes);
  }

  std::vector<PlannedIdea> ideas(const PlanGraph& graph) const {
    using Keep = std::function<bool(const TensorView*, const Placement&)>;
    const auto isParameter = [&](const TensorView* tv) { return roles_.isParameter(tv); };
    const auto cutsRows = [&](const TensorView* tv, const Placement& p, int8_t dim) {
      return std::ssize(tv->noReductions()) > dim ? cutsOnly(p, dim) : isWhole(p);
    };
    const std::vector<std::pair<std::string, Keep>> all{
        {"data", [&](auto* tv, auto& p) { return isParameter(tv) ? isWhole(p) : cutsRows(tv, p, 0); }},
        {"tensor", [&](auto* tv, auto& p) { return isParameter(tv) || isWhole(p); }},
        {"sequence", [&](auto* tv, auto& p) { return isParameter(tv) ? isWhole(p) : cutsRows(tv, p, 1); }},
        {"zero", [&](auto* tv, auto& p) { return isParameter(tv) || cutsRows(tv, p, 0); }},
    };
    std::vector<PlannedIdea> result;
    for (const auto& [name, keep] : all) {
      PlannedIdea& idea = result.emplace_back(PlannedIdea{name, std::nullopt});
      if (const std::optional<PlanGraph> only = restricted(graph, concrete_, keep)) {
        if (const auto found = searchPlan(*only, machines_.memoryPerDevice, deadline_)) {
          idea.seconds = found->seconds;
        }
      }
    }
    return result;
  }

  PlannedPipeline pipeline() const {
    check(machines_.devices() >= 2,
          "[autoplan] a pipeline needs at least 2 devices, the machines have 1; ask for no micro-batches");
    for (const TensorView* tv : concrete_.tensors()) {
      check(!tv->hasDeviceMesh(),
            "[autoplan] {} is annotated, and a pipeline has a mesh for each stage; remove the annotations, or ask for "
            "no micro-batches",
            tv->toString());
    }
    const MicroBatches micro = microBatches(concrete_, *wishes_.microBatches);
    const ProgramParts parts = programParts(micro);
    const int64_t stages = wishes_.stages.value_or(2);
    check(stages >= 2, "[autoplan] stages is {}, expected at least 2", stages);
    check(stages <= machines_.devices(),
          "[autoplan] stages is {}, the machines have {} devices; ask for at most so many", stages,
          machines_.devices());
    check(stages <= parts.count,
          "[autoplan] stages is {}, but the program has {} part{} among which a pipeline can be cut; ask for {}",
          stages, parts.count, parts.count == 1 ? "" : "s",
          parts.count < 2 ? "no micro-batches" : fmt::format("at most {} stages", parts.count));
    const auto graphOf = [&](const Fusion& fusion, const DistributedConfig& machines, const DeviceMesh& mesh) {
      return graphFor(fusion, machines, mesh);
    };
    StageCosts costs(micro, parts, machines_, graphOf, deadline_);
    const auto found = searchPipeline(costs, parts, machines_,
                                      {.microBatches = micro.count, .groups = wishes_.stages, .deadline = deadline_});
    PlannedPipeline result{.microBatches = micro.count, .hasBackward = parts.hasBackward};
    if (found) {
      describe(*found, parts, result);
    }
    return result;
  }

  // Seconds of the best plan in which a node has another placement; of nodes with the same edges in repeated layers that of the first.
  std::optional<double> nextBest(const Candidate& candidate, int64_t node) {
    const auto [known, isNew] = nextBest_.try_emplace(surroundings(candidate, node));
    if (isNew) {
      known->second = nextBestOf(candidate, node);
    }
    return known->second;
  }

 private:
  using Surroundings = std::vector<std::pair<const void*, int64_t>>;

  void describe(const FoundPipeline& found, const ProgramParts& parts, PlannedPipeline& result) const {
    result.virtualStages = found.schedule.virtualStages;
    result.seconds = found.seconds;
    result.bound = found.bound;
    result.timeLimitReached = found.isLate;
    double busy = 0;
    for (const int64_t k : indices(found.stages)) {
      const StageOfParts& stage = found.stages[k];
      const StagePlan& plan = found.plans[k];
      if (k < found.schedule.groups) {
        result.stages.push_back({.firstDevice = found.firstDevices[k], .mesh = plan.mesh});
      }
      PlannedStage& group = result.stages[k % found.schedule.groups];
      group.forward += plan.seconds.forward;
      group.backward += plan.seconds.backward;
      group.update += plan.seconds.update;
      group.memory += plan.peak;
      std::vector<int64_t> forward;
      for (const int64_t step : indices(parts.exprs)) {
        if (parts.parts[step] >= stage.begin && parts.parts[step] < stage.end) {
          group.numOps++;
          if (parts.passes[step] == PassOfProgram::Forward) {
            forward.push_back(parts.exprs[step]->output()->id());
          }
        }
      }
      group.ops.push_back(fmt::format("T{} to T{}", forward.front(), forward.back()));
      busy += static_cast<double>(stage.devices) *
              (static_cast<double>(result.microBatches) * plan.ofMicroBatch() + plan.seconds.update);
    }
    result.idle = 1 - busy / (found.seconds * static_cast<double>(machines_.devices()));
  }

  static Surroundings surroundings(const Candidate& c, int64_t node) {
    Surroundings result;
    for (const PlanEdge& edge : c.graph.edges) {
      if (edge.from == node || edge.to == node) {
        result.emplace_back(edge.tables.get(), c.plan.choices[edge.from == node ? edge.to : edge.from]);
      }
    }
    std::ranges::sort(result);
    const int64_t op = c.graph.nodes[node].strategies;
    result.emplace_back(op < 0 ? nullptr : c.graph.nodes[op].choices.get(), c.plan.choices[node]);
    return result;
  }

  std::optional<double> nextBestOf(const Candidate& candidate, int64_t node) const {
    PlanGraph other = candidate.graph;
    const PlanNode& n = other.nodes[node];
    bool any = false;
    for (int64_t k = 0; k < std::ssize(n.placements); k++) {
      const bool isChosen = n.placements[k] == n.placements[candidate.plan.choices[node]];
      any |= !isChosen && std::isfinite(other.costs.costs[node][k]);
      if (isChosen) {
        other.costs.costs[node][k] = kForbidden;
      }
    }
    if (!any || Clock::now() > deadline_) {
      return std::nullopt;
    }
    const auto found = searchPlan(other, machines_.memoryPerDevice, deadline_);
    return found ? std::optional(found->seconds) : std::nullopt;
  }

  PlanGraph graphFor(const DeviceMesh& mesh) const { return graphFor(concrete_, machines_, mesh); }

  // `fusion`: with the inputs of the program, maybe of other sizes.
  PlanGraph graphFor(const Fusion& fusion, const DistributedConfig& machines, const DeviceMesh& mesh) const {
    PlanGraph graph = planGraph(fusion, machines, mesh, wishes_.allowUneven ? Division::Uneven : Division::Even,
                                wishes_.reduceInFloat ? SumType::Accumulated : SumType::Result);
    if (!wishes_.shardOptimizerState) {
      graph = *restricted(graph, fusion, [&](auto* tv, auto& p) { return !roles_.isOptimizerState(tv) || isWhole(p); });
    }
    return graph;
  }

  // The plan of least memory, where the search found none that fits. NoPlanFits if it does not fit either.
  Candidate leastThatFits(const std::vector<DeviceMesh>& meshes) const {
    const bool isLate = Clock::now() > deadline_;
    PlanGraph graph;
    LeastMemory least{.peak = kForbidden};
    double bound = kForbidden;
    const Deadline deadline = Clock::now() + kRefusal;
    for (const DeviceMesh& mesh : meshes) {
      PlanGraph other = graphFor(mesh);
      LeastMemory found = leastMemory(other, deadline);
      bound = std::min(bound, found.bound);
      if (found.peak < least.peak) {
        least = std::move(found);
        graph = std::move(other);
      }
    }
    const double seconds = graph.costs.costOf(least.choices);
    if (least.peak > machines_.memoryPerDevice || !std::isfinite(seconds)) {
      least.bound = bound;
      refuse(graph, least, isLate);
    }
    FoundPlan plan{.choices = std::move(least.choices),
                   .seconds = seconds,
                   .bound = std::min(minimize(graph.costs).bound, seconds),
                   .peak = least.peak,
                   .isLate = isLate};
    return {std::move(graph), std::move(plan)};
  }

  // Names the least memory that would do.
  [[noreturn]] void refuse(const PlanGraph& graph, const LeastMemory& least, bool isLate) const {
    const std::vector<double> memory = graph.memoryOf(least.choices);
    const int64_t step = std::ranges::max_element(memory) - memory.begin();
    std::vector<std::pair<double, std::string>> held;
    for (int64_t k = 0; k < std::ssize(graph.nodes); k++) {
      for (const StoredTensor& t : graph.nodes[k].stored) {
        if (t.firstStep <= step && step <= t.lastStep) {
          const double bytes = graph.nodes[k].elements[least.choices[k]] * static_cast<double>(t.size);
          held.emplace_back(bytes, fmt::format("T{} {:.4g}", t.id, bytes));
        }
      }
    }
    std::ranges::stable_sort(held, std::greater<>(), [](const auto& entry) { return entry.first; });
    held.resize(std::min<size_t>(held.size(), kNamedTensors));
    const std::string tensors = joined(held, ", ", [](const auto& entry) { return entry.second; });
    const double gap = least.peak / std::max(least.bound, 1.0) - 1;
    const std::string text =
        least.bound > machines_.memoryPerDevice
            ? fmt::format(
                  "[autoplan] no plan fits in memoryPerDevice, {:.4g} bytes: the least that would do is "
                  "{:.4g}{}, on mesh {}; the largest tensors at its peak, in bytes on a device: {}; add "
                  "devices or memory, or make these tensors smaller",
                  machines_.memoryPerDevice, least.peak,
                  gap > kEnoughGap ? fmt::format(", or up to {:.2f}% less", 100 * (1 - least.bound / least.peak)) : "",
                  meshText(graph.mesh), tensors)
            : fmt::format(
                  "[autoplan] no plan that fits in memoryPerDevice, {:.4g} bytes, was found: the smallest one "
                  "found takes {:.4g}, on mesh {}, and none takes less than {:.4g}; the largest tensors at its "
                  "peak, in bytes on a device: {}; {}add devices or memory, or make these tensors smaller",
                  machines_.memoryPerDevice, least.peak, meshText(graph.mesh), least.bound, tensors,
                  isLate ? fmt::format("raise maxSeconds, {} s, ", wishes_.maxSeconds) : "");
    throw NoPlanFits(text, least.peak, least.bound);
  }

  const Fusion& concrete_;
  const DistributedConfig& machines_;
  const OptimizationConfig& wishes_;
  const Deadline deadline_;
  const Roles roles_;
  std::map<Surroundings, std::optional<double>> nextBest_;
};

std::vector<PlannedOp> opsOf(const Candidate& c) {
  std::vector<PlannedOp> ops;
  std::map<const Expr*, size_t> opOf;
  for (int64_t k = 0; k < std::ssize(c.graph.nodes); k++) {
    const PlanNode& node = c.graph.nodes[k];
    const double seconds = c.graph.costs.costs[k][c.plan.choices[k]];
    if (node.choices != nullptr) {
      opOf[node.expr] = ops.size();
      ops.push_back({.name = fmt::format("T{} = {}", node.head, node.expr->opName()),
                     .strategy = describe(*node.expr, node.choices->at(c.plan.choices[k]).strategy, c.graph.mesh),
                     .compute = seconds});
    } else if (node.expr != nullptr) {  // the result, after its strategies
      ops[opOf.at(node.expr)].compute += seconds;
    }
  }
  for (const PlanEdge& edge : c.graph.edges) {
    const Expr* reader = c.graph.nodes[edge.to].expr;
    const auto at = opOf.find(reader != nullptr ? reader : c.graph.nodes[edge.from].expr);
    if (at != opOf.end()) {
      const int64_t held = c.plan.choices[edge.from];
      const int64_t needed = c.plan.choices[edge.to];
      ops[at->second].communication += edge.tables->seconds.at(held, needed);
      ops[at->second].bytes += edge.tables->bytes.at(held, needed);
    }
  }
  return ops;
}

}  // namespace

UnappliedPlan unappliedPlan(const Fusion& fusion, const DistributedConfig& machines, const OptimizationConfig& wishes) {
  const auto start = Clock::now();
  checkMachines(machines);
  check(wishes.microBatches.has_value() || !wishes.stages.has_value(),
        "[autoplan] stages is {} without microBatches, which a pipeline needs; set microBatches, the number of parts "
        "of a batch",
        wishes.stages.value_or(0));
  check(wishes.maxSeconds > 0, "[autoplan] maxSeconds is {}, expected a positive number", wishes.maxSeconds);
  const Deadline deadline = start + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(std::min(wishes.maxSeconds, 1e6)));
  const bool isOpen = !openAxes(fusion).empty();
  const std::unique_ptr<Fusion> sized = isOpen ? withMeshSizes(fusion, wishes.mesh, machines) : nullptr;
  const Fusion& given = isOpen ? *sized : fusion;
  const std::unique_ptr<Fusion> concrete = withSizes(given, wishes.sizes);
  Planner planner(*concrete, machines, wishes, deadline);
  const Candidate best =
      planner.best(meshesFor(annotatedMesh(given), isOpen ? std::vector<DeviceMesh::Axis>() : wishes.mesh, machines));
  Annotations annotations = tensorsToAnnotate(*concrete, best.graph, best.plan.choices,
                                              withLinkCosts(fusion.planner(), machines, best.graph.mesh));

  AutoPlan plan{.mesh = best.graph.mesh,
                .seconds = best.plan.seconds,
                .bound = best.plan.bound,
                .commBytes = best.graph.bytesOf(best.plan.choices),
                .peakMemory = best.plan.peak,
                .timeLimitReached = best.plan.isLate,
                .ops = opsOf(best)};
  for (const TensorView* tv : concrete->tensors()) {
    const bool byUser = tv->hasDeviceMesh();
    if (!byUser && !std::ranges::binary_search(annotations.tensors, tv->id())) {
      continue;
    }
    const int64_t node = best.graph.nodeOf.at(tv->id());
    const Placement& placement = best.graph.nodes[node].placements[best.plan.choices[node]];
    const ShardState state = stateOf(placement, tv->constantShape(), best.graph.mesh);
    PlannedTensor& pin = plan.pins.emplace_back();
    pin.id = tv->id();
    pin.name = fmt::format("T{}", tv->id());
    pin.sharding = joined(indices(state.dims), " ", [&](int64_t k) { return state.dimText(k); });
    for (const int64_t axis : indices(placement)) {
      if (placement[axis] != kUncut) {
        pin.axes.push_back(axis);
      }
    }
    pin.placement = placement;
    pin.byUser = byUser;
    pin.nextBest = byUser || !wishes.alternatives ? std::nullopt : planner.nextBest(best, node);
  }
  if (wishes.alternatives) {
    plan.ideas = planner.ideas(best.graph);
  }
  if (wishes.microBatches) {
    plan.pipeline = planner.pipeline();
    plan.timeLimitReached |= plan.pipeline->timeLimitReached;
  }
  plan.search = std::chrono::duration<double>(Clock::now() - start).count();
  const bool hasValues = !isOpen && wishes.sizes.empty() && !plan.pins.empty();
  return {std::move(plan), hasValues ? std::optional(std::move(annotations.propagated)) : std::nullopt};
}

AutoPlan autoParallelize(Fusion& fusion, const DistributedConfig& machines, const OptimizationConfig& wishes,
                         const std::filesystem::path& outDir) {
  const auto start = Clock::now();
  AutoPlan plan = unappliedPlan(fusion, machines, wishes).plan;
  const std::unique_ptr<Fusion> trial = fusion.clone();  // an error leaves `fusion` as it is
  applyPlan(*trial, plan, machines);
  plan.search = std::chrono::duration<double>(Clock::now() - start).count();
  if (!outDir.empty()) {
    writePlan(outDir, *trial, plan);
  }
  applyPlan(fusion, plan, machines);
  plan.search = std::chrono::duration<double>(Clock::now() - start).count();
  return plan;
}

void applyPlan(Fusion& fusion, const AutoPlan& plan, const DistributedConfig& machines) {
  const DeviceMesh mesh = openAxes(fusion).empty() ? plan.mesh : annotatedMesh(fusion);
  for (const PlannedTensor& pin : plan.pins) {
    if (!pin.byUser) {
      annotate(fusion.val(pin.id)->asTensor(), pin.placement, mesh);
    }
  }
  if (!plan.pins.empty()) {
    fusion.setPlanner(withLinkCosts(fusion.planner(), machines, plan.mesh));
  }
}

}  // namespace meshfuse
