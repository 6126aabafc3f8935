#include "multidevice/sharding/planner.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/held_part.h"
#include "multidevice/sharding/moves.h"
#include "multidevice/sharding/permutes.h"
#include "multidevice/sharding/plan_check.h"
#include "multidevice/sharding/search.h"
#include "multidevice/sharding/tile_transfer.h"
#include "multidevice/sharding/two_meshes.h"

namespace meshfuse {

namespace {

// A plan on coarse atoms that costs this much more than any plan must is tried again on finer ones, with a smaller search.
constexpr double kSlack = 1.02;
constexpr int64_t kRefinedStates = 60;

#if defined(MESHFUSE_SANITIZE_ADDRESS) || !defined(__OPTIMIZE__)
constexpr bool kCheckPlans = true;
#else
constexpr bool kCheckPlans = false;
#endif

// One pair of states on atoms, ready to be searched.
struct Problem {
  AtomPair pair;
  std::vector<int64_t> extents;
  PlanSpace space;
  MovePrices prices;

  Problem(AtomPair p, const std::vector<int64_t>& shape, const PlanOptions& options)
      : pair(std::move(p)), extents(shape), space(extents, pair.on.atoms.axisSizes(), pair.from, pair.to), prices{} {
    for (const AtomOrigin& origin : pair.on.origins) {
      const std::string& axis = pair.on.mesh.axisName(origin.axis);
      prices.alpha.byAtom.push_back(options.alphas.empty() ? options.alpha : costAlong(axis, options.alphas));
      prices.beta.byAtom.push_back(costAlong(axis, options.beta));
    }
  }

  int64_t largerEnd() const { return std::max(space.localSize(space.from()), space.localSize(space.to())); }
};

// Adjacent slices over several atoms remain separate steps: each is one index map; the executor composes them.
void append(RedistributionPlan& plan, Problem& problem, const std::vector<Move>& chain) {
  MoveMaker maker(problem.space, problem.prices, {});
  SearchState at = problem.space.from();
  plan.peakState = std::max(plan.peakState, problem.space.localSize(at));
  for (const Move& move : chain) {
    CommStep step{.kind = move.kind,
                  .on = problem.pair.on,
                  .axes = atomsOf(move.group),
                  .before = problem.space.toPlanState(at),
                  .after = problem.space.toPlanState(move.after)};
    if (move.kind == Collective::Transfer) {
      step.sources = permuteSources(step.on.atoms.axisSizes(), step.before, step.after);
    }
    plan.cost += maker.cost(at, move);
    plan.elements += static_cast<int64_t>(maker.received(at, move));
    plan.peakState = std::max(plan.peakState, problem.space.localSize(move.after));
    plan.steps.push_back(std::move(step));
    at = move.after;
  }
}

AllowedMoves allowedMoves(const PlanOptions& options) {
  AllowedMoves allowed{options.sums, options.forbid};
  if (!options.permutes) {
    allowed.forbidden.push_back(Collective::Transfer);
  }
  return allowed;
}

std::vector<int64_t> constantShape(const ShardState& state) {
  std::vector<int64_t> shape;
  for (const DigitList& dim : state.dims) {
    if (dim.isOpaque() || !dim.extent().isConst()) {  // messages cost more than a small plan
      throwInternalError(fmt::format("[planner] {} has {}", state.toString(),
                                     dim.isOpaque() ? "a dim without digits; it should have been refused before"
                                                    : "symbolic sizes; bind them first"));
    }
    shape.push_back(dim.extent().constValue());
  }
  return shape;
}

// Combines sums on the source mesh, then gathers there and slices on the destination, each with the atoms of its own side.
RedistributionPlan throughWhole(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                                const PlanOptions& options) {
  const std::vector<IntExpr> extents(shape.begin(), shape.end());
  RedistributionPlan plan;
  Problem gather(nestedAtoms(from, ShardState::replicated(from.mesh, extents)), shape, options);
  std::vector<Move> chain;
  SearchState at = gather.space.from();
  if (const AtomSet group = std::exchange(at.partial, 0); group != 0) {
    chain.push_back({Collective::AllReduce, group, at});
  }
  if (const AtomSet group = gather.space.used(at); group != 0) {
    chain.push_back({Collective::AllGather, group, gather.space.drop(at, group)});
  }
  append(plan, gather, chain);
  Problem slices(nestedAtoms(ShardState::replicated(to.mesh, extents), to), shape, options);
  MoveMaker maker(slices.space, slices.prices, {});
  std::optional<std::vector<Move>> cuts = maker.slicesToGoal(slices.space.from());
  if (!cuts) {  // blocks are larger than the axes require: one slice for all atoms
    cuts = {{Collective::Local, slices.space.goalAtoms(), slices.space.to()}};
  }
  append(plan, slices, *cuts);
  return plan;
}

// The cheapest chain on the coarsest atoms that have one. If its cost is far above the lower bound, finer atoms are tried. Afterwards
// `problem` has the atoms of the chain, or the last ones tried.
std::optional<FoundChain> findChain(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                                    const PlanOptions& options, std::unique_ptr<Problem>& problem, int64_t bound) {
  std::optional<FoundChain> best;
  std::vector<AtomOrigin> tried;
  for (AtomLevel level : {AtomLevel::Axis, AtomLevel::Digit, AtomLevel::Prime}) {
    if (best) {
      const double least = leastCost(problem->space, problem->prices, problem->space.from(), PlanSpace::Ranks::All);
      if (level == AtomLevel::Prime || best->cost <= kSlack * least) {
        break;
      }
    }
    std::optional<AtomPair> pair = atomPair(from, to, level);
    if (!pair || pair->on.origins == tried || !PlanSpace::fits(pair->from, pair->on.atoms.axisSizes())) {
      continue;
    }
    tried = pair->on.origins;
    auto next = std::make_unique<Problem>(std::move(*pair), shape, options);
    SearchLimits limits{bound, options.maxStates};
    if (best) {
      limits.maxStates = std::min(kRefinedStates, options.maxStates);
      limits.below = best->cost;
    }
    AllowedMoves allowed = allowedMoves(options);
    allowed.spareSlices = !next->prices.alpha.uniform() || !next->prices.beta.uniform();
    MoveMaker maker(next->space, next->prices, allowed);
    std::optional<FoundChain> found = searchChain(next->space, maker, limits);
    if (!found && !best && !allowed.spareSlices) {
      allowed.spareSlices = true;
      MoveMaker wider(next->space, next->prices, allowed);
      found = searchChain(next->space, wider, limits);
    }
    if (found || !best) {
      best = std::move(found);
      problem = std::move(next);
    }
  }
  return best;
}

RedistributionPlan directPlan(const Problem& problem, const PlanOptions& options) {
  const auto& [on, from, to] = problem.pair;
  CommStep step{.kind = Collective::Transfer, .on = on, .before = from, .after = to, .to = on};
  const TileTransfer t = tileTransfer(step, problem.extents);
  step.axes = t.crossed;
  RedistributionPlan plan;
  plan.steps.push_back(std::move(step));
  plan.elements = t.received;
  const AtomSet crossed = atomSetOf(t.crossed);
  const double message = options.alphas.empty() ? options.alphaPeer : problem.prices.alpha.largest(crossed);
  plan.cost = message * static_cast<double>(t.peers) +
              problem.prices.beta.largest(crossed) * static_cast<double>(std::max(t.received, t.sent));
  plan.peakState = problem.largerEnd();
  return plan;
}

// Whether a direct transfer can undercut the chain: it receives at least `least`, and a message brings at most one tile.
bool mayPay(const Problem& problem, double least, double chainCost, const PlanOptions& options) {
  const double tile = static_cast<double>(std::max<int64_t>(1, problem.space.localSize(problem.space.from())));
  const double message = options.alphas.empty() ? options.alphaPeer : problem.prices.alpha.least();
  return message * std::ceil(std::ceil(least) / tile) + problem.prices.beta.least() * least < chainCost - kTieCost;
}

// Dims that both sides cut have the same parts of given sizes on both, or no such parts.
bool haveSameParts(const ShardState& from, const ShardState& to) {
  return std::ranges::equal(from.dims, to.dims, [](const DigitList& a, const DigitList& b) {
    return !a.hasOwned() || !b.hasOwned() || a.digits().front().parts == b.digits().front().parts;
  });
}

RedistributionPlan planOnMesh(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                              const PlanOptions& options) {
  const bool sameParts = haveSameParts(from, to);
  std::optional<AtomPair> whole = sameParts ? atomPair(from, to, AtomLevel::Axis) : std::nullopt;
  if (!whole && options.transfers) {
    RedistributionPlan plan = planBetween(from, to, shape, options);
    plan.note = sameParts ? "the digits cut an axis in ways that do not nest: tiles are sent directly"
                          : "the parts have other sizes: tiles are sent directly";
    return plan;
  }
  const bool ofSums = !from.partial.empty() || !to.partial.empty();
  const bool mayTransfer = options.transfers && (!ofSums || options.sums == PartialSums::Moved);
  std::unique_ptr<Problem> problem;
  std::optional<FoundChain> chain;
  double least = 0;
  int64_t bound = options.bound.value_or(0);
  if (whole && PlanSpace::fits(whole->from, whole->on.atoms.axisSizes())) {
    problem = std::make_unique<Problem>(std::move(*whole), shape, options);
    least = problem->space.lowerBound(problem->space.from());
    bound = std::max(bound, problem->largerEnd());
    chain = findChain(from, to, shape, options, problem, bound);
  }
  RedistributionPlan plan;
  if (chain) {
    append(plan, *problem, chain->moves);
  }
  // One collective with uneven parts moves the missing elements; its price is that of even parts.
  const bool oneUnevenCall =
      chain && (isRagged(from) || isRagged(to)) && std::ranges::count_if(plan.steps, &CommStep::communicates) <= 1;
  if (mayTransfer && problem && !oneUnevenCall &&
      (!chain || (options.direct == DirectChoice::Priced && mayPay(*problem, least, plan.cost, options)))) {
    RedistributionPlan direct = directPlan(*problem, options);
    if (!chain || direct.cost < plan.cost - 2 * kTieCost * static_cast<double>(plan.steps.size())) {
      plan = std::move(direct);
      plan.note = chain ? "" : "no chain of collectives stays within the bound: tiles are sent directly";
    }
  } else if (!chain && !from.partial.empty() && !(options.forbid.empty() && options.permutes && options.transfers)) {
    PlanOptions allowed = options;  // there is no other way to combine a sum
    allowed.forbid.clear();
    allowed.permutes = allowed.transfers = true;
    plan = planOnMesh(from, to, shape, allowed);
    plan.note = "no allowed move combines the sum: forbidden moves are used";
  } else if (!chain && options.transfers && problem && to.partial.empty() &&
             usedAtoms(problem->pair.to) != usedAtoms(problem->pair.from)) {
    plan = planBetween(from, to, shape, options);
    plan.note = "no chain of collectives stays within the bound: sums are combined, then tiles are sent directly";
  } else if (!chain) {
    plan = throughWhole(from, to, shape, options);
    plan.note = "no chain of collectives stays within the larger of both local sizes: gathers, then slices";
  }
  plan.leastElements = least;
  plan.peakState = std::max(plan.peakState, problem ? problem->largerEnd() : 0);
  plan.bound = std::max(bound, plan.note.empty() ? 0 : plan.peakState);
  return plan;
}

}  // namespace

std::vector<std::string> RedistributionPlan::communications() const {
  return mapped(steps | std::views::filter(&CommStep::communicates), &CommStep::toString);
}

RedistributionPlan planRedistribution(const ShardState& from, const ShardState& to, const PlanOptions& options) {
  const std::vector<int64_t> shape = constantShape(from);
  if (shape != constantShape(to)) {
    throwInternalError(fmt::format("[planner] {} and {} have different extents", from.toString(), to.toString()));
  }
  if (contains(shape, 0)) {
    return {};  // an empty tensor moves nothing
  }
  if (!to.partial.empty() && options.sums == PartialSums::Combined) {
    throwInternalError(
        fmt::format("[planner] the destination {} is a partial sum; host programs combine sums before they move them",
                    to.toString()));
  }
  RedistributionPlan plan;
  if (from.mesh == to.mesh) {
    plan = planOnMesh(from, to, shape, options);
  } else if (options.transfers) {
    plan = planBetween(from, to, shape, options);
  } else {
    check(haveSameDevices(from.mesh, to.mesh),
          "[redistribute] from mesh {} to mesh {}: got different devices, expected the same; place both tensors on one "
          "mesh",
          from.mesh.toString(), to.mesh.toString());
    plan = throughWhole(from, to, shape, options);
    plan.note = "the meshes differ: gathers on one, then slices on the other";
    plan.bound = plan.peakState;
  }
  if (kCheckPlans) {
    checkPlan(plan, from, to, plan.bound);
  }
  return plan;
}

}  // namespace meshfuse
