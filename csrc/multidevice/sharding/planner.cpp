#include "multidevice/sharding/planner.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "base/error.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/moves.h"

namespace meshfuse {

namespace {

constexpr double kSliceCost = 1e-3;

PlanProblem problemOf(const AtomPair& pair, const std::vector<int64_t>& extents, const PlanOptions& options) {
  PlanProblem p{extents, {}, pair.from, pair.to, {}, options.forbid};
  for (int a = 0; a < pair.mesh.numAxes(); a++) {
    p.atomSizes.push_back(pair.mesh.axisSize(a).constValue());
  }
  for (size_t k = 0; k < extents.size(); k++) {
    std::set<int64_t> strides;
    for (const PlanState* state : {&p.from, &p.to}) {
      for (const PlanDigit& d : state->dims[k]) {
        strides.insert(d.stride);
      }
    }
    p.strides.emplace_back(strides.begin(), strides.end());
  }
  return p;
}

double costOf(const PlanProblem& problem, const PlanState& before, const Move& move, const PlanOptions& options) {
  if (move.kind == StepKind::Slice) {
    return kSliceCost;
  }
  // A thousandth of a slice apart, so that equal bytes go by the order of StepKind.
  const double tie = 1e-6 * static_cast<double>(move.kind);
  return options.alpha + tie + static_cast<double>(received(problem, before, move));
}

// Where the search stands: a state, and whether a permutation was spent.
using Node = std::pair<PlanState, bool>;

struct Reached {
  double cost;
  Node previous;
  Move move;
};

struct Open {
  double estimate;
  double cost;
  int64_t order;
  Node node;
  bool operator<(const Open& other) const {  // the smallest first in std::priority_queue
    return std::tie(estimate, order) > std::tie(other.estimate, other.order);
  }
};

std::vector<Move> chainTo(const std::map<Node, Reached>& reached, const Node& start, Node at) {
  std::vector<Move> chain;
  while (at != start) {
    const Reached& r = reached.at(at);
    chain.push_back(r.move);
    at = r.previous;
  }
  std::reverse(chain.begin(), chain.end());
  return chain;
}

std::optional<std::vector<Move>> search(const PlanProblem& problem, int64_t bound, const PlanOptions& options) {
  auto estimate = [&](const PlanState& state) {
    const double bytes = lowerBound(problem, state);
    return bytes > 0 ? options.alpha + bytes : 0.0;
  };
  const Node start{problem.from, false};
  std::map<Node, Reached> reached;
  std::map<Node, double> best{{start, 0}};
  std::priority_queue<Open> open;
  int64_t order = 0;
  open.push({estimate(problem.from), 0, order++, start});
  int expanded = 0;
  while (!open.empty()) {
    const Open here = open.top();
    open.pop();
    const auto& [state, permuted] = here.node;
    if (here.cost > best.at(here.node)) {
      continue;
    }
    if (state == problem.to) {
      return chainTo(reached, start, here.node);
    }
    if (++expanded > options.maxStates) {
      return std::nullopt;
    }
    std::vector<Move> next = moves(problem, state, permuted);
    if (std::optional<Move> gather = closingGather(problem, state)) {
      next.push_back(std::move(*gather));
    }
    for (Move& move : next) {
      if (localSize(move.after) > bound) {
        continue;
      }
      Node to{move.after, permuted || move.kind == StepKind::Permute};
      const double cost = here.cost + costOf(problem, state, move, options);
      auto known = best.find(to);
      if (known != best.end() && known->second <= cost) {
        continue;
      }
      best[to] = cost;
      const double total = cost + estimate(to.first);
      open.push({total, cost, order++, to});
      reached.insert_or_assign(std::move(to), Reached{cost, here.node, std::move(move)});
    }
  }
  return std::nullopt;
}

// Neighbouring slices over several atoms stay apart: each is one index map; the executor sees their composition.
void append(RedistributionPlan& plan, const PlanProblem& problem, const AtomPair& pair, const DeviceMesh& mesh,
            const std::vector<Move>& chain, const PlanOptions& options) {
  PlanState at = pair.from;
  for (const Move& move : chain) {
    CommStep step{move.kind, pair.mesh, mesh, pair.origins, move.group, at, move.after, received(problem, at, move),
                  {}};
    if (move.kind == StepKind::Permute) {
      step.sources = permuteSources(problem, at, move.after);
    }
    plan.cost += costOf(problem, at, move, options);
    plan.elements += step.elements;
    plan.peakState = std::max({plan.peakState, localSize(at), localSize(move.after)});
    plan.steps.push_back(std::move(step));
    at = move.after;
  }
}

std::vector<int64_t> constantShape(const ShardState& state) {
  std::vector<int64_t> shape;
  for (const DigitList& dim : state.dims) {
    invariant(!dim.isOpaque(), "[planner] {} has a dim without digits; it should have been refused before",
              state.toString());
    invariant(dim.size().isConst(), "[planner] {} has symbolic sizes; bind them first", state.toString());
    shape.push_back(dim.size().constValue());
  }
  return shape;
}

// Sums are combined where they are, then everything is gathered and sliced, each on the atoms of its own side.
RedistributionPlan throughWhole(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                                const PlanOptions& options) {
  std::vector<IntExpr> extents(shape.begin(), shape.end());
  RedistributionPlan plan;
  PlanOptions unbounded = options;
  unbounded.forbid.clear();
  const ShardState whole = ShardState::replicated(from.mesh, extents);
  std::optional<AtomPair> first = atomPair(from, whole, AtomLevel::Axis);
  invariant(first.has_value(), "[planner] the digits of {} cut an axis in ways that do not nest", from.toString());
  PlanProblem problem = problemOf(*first, shape, unbounded);
  std::vector<Move> chain;
  PlanState at = first->from;
  if (!at.partial.empty()) {
    PlanState done = at;
    done.partial.clear();
    chain.push_back({StepKind::AllReduce, at.partial, done});
    at = done;
  }
  for (Move& move : gatherThenSlice(problem, at)) {
    chain.push_back(std::move(move));
  }
  append(plan, problem, *first, from.mesh, chain, unbounded);
  const ShardState there = ShardState::replicated(to.mesh, extents);
  std::optional<AtomPair> second = atomPair(there, to, AtomLevel::Axis);
  invariant(second.has_value(), "[planner] the digits of {} cut an axis in ways that do not nest", to.toString());
  PlanProblem slices = problemOf(*second, shape, unbounded);
  append(plan, slices, *second, to.mesh, gatherThenSlice(slices, second->from), unbounded);
  return plan;
}

}  // namespace

std::string_view name(StepKind kind) {
  switch (kind) {
    case StepKind::Slice:
      return "slice";
    case StepKind::Permute:
      return "permute";
    case StepKind::AllToAll:
      return "all_to_all";
    case StepKind::AllGather:
      return "all_gather";
    case StepKind::ReduceScatter:
      return "reduce_scatter";
    case StepKind::AllReduce:
      return "all_reduce";
  }
  return "";
}

std::string CommStep::toString() const {
  std::string text = fmt::format("{}(", name(kind));
  for (size_t i = 0; i < axes.size(); i++) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", mesh.axisName(axes[i]));
  }
  return text + ")";
}

std::vector<std::string> RedistributionPlan::communications() const {
  std::vector<std::string> out;
  for (const CommStep& step : steps) {
    if (step.communicates()) {
      out.push_back(step.toString());
    }
  }
  return out;
}

RedistributionPlan planRedistribution(const ShardState& from, const ShardState& to, const PlanOptions& options) {
  const std::vector<int64_t> shape = constantShape(from);
  invariant(shape == constantShape(to), "[planner] {} and {} have different extents", from.toString(), to.toString());
  invariant(to.partial.empty(), "[planner] {} is partial; only what a pass creates is, and it is combined at once",
            to.toString());
  if (!(from.mesh == to.mesh)) {
    std::vector<int64_t> a = from.mesh.devices();
    std::vector<int64_t> b = to.mesh.devices();
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    check(a == b,
          "[redistribute] from mesh {} to mesh {}: got different devices, expected the same; place both tensors on one "
          "mesh",
          from.mesh.toString(), to.mesh.toString());
    RedistributionPlan plan = throughWhole(from, to, shape, options);
    plan.note = "the meshes differ: gathers on one, then slices on the other";
    return plan;
  }
  for (AtomLevel level : {AtomLevel::Axis, AtomLevel::Digit}) {
    std::optional<AtomPair> pair = atomPair(from, to, level);
    if (!pair) {
      break;
    }
    const PlanProblem problem = problemOf(*pair, shape, options);
    const int64_t bound = options.bound.value_or(std::max(localSize(pair->from), localSize(pair->to)));
    if (std::optional<std::vector<Move>> chain = search(problem, bound, options)) {
      RedistributionPlan plan;
      append(plan, problem, *pair, from.mesh, *chain, options);
      plan.peakState = std::max({plan.peakState, localSize(pair->from), localSize(pair->to)});
      return plan;
    }
  }
  RedistributionPlan plan = throughWhole(from, to, shape, options);
  plan.note = "no chain of collectives stays within the larger of both local sizes: gathers, then slices";
  return plan;
}

}  // namespace meshfuse
