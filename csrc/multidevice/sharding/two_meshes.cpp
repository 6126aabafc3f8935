#include "multidevice/sharding/two_meshes.h"

#include <algorithm>

#include "base/error.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

namespace {

// Every axis that owns no digit takes the outermost local digit that it divides, in the first dim that has one.
ShardState spread(const ShardState& state) {
  ShardState out = state;
  for (int axis = 0; axis < state.mesh.numAxes(); axis++) {
    const int64_t n = state.mesh.axisSize(axis).constValue();
    const bool partial = std::count(state.partial.begin(), state.partial.end(), axis) > 0;
    if (n == 1 || partial || out.owns(axis)) {
      continue;
    }
    for (DigitList& dim : out.dims) {
      if (dim.hasParts()) {
        continue;
      }
      std::vector<Digit> digits(dim.digits().begin(), dim.digits().end());
      auto room = std::find_if(digits.begin(), digits.end(),
                               [&](const Digit& d) { return d.owner.isLocal() && d.size.constValue() % n == 0; });
      if (room == digits.end()) {
        continue;
      }
      Digit owned = *room;
      owned.size = n;
      owned.stride = room->stride.constValue() * (room->size.constValue() / n);
      owned.owner = Owner::device(axis);
      room->size = room->size.constValue() / n;
      digits.insert(room, owned);
      dim = DigitList(std::move(digits));
      break;
    }
  }
  return out;
}

ShardState withoutSums(ShardState state) {
  state.partial.clear();
  return state;
}

// A state on the atoms of its own mesh.
AtomPair ownAtoms(const ShardState& state) {
  std::optional<AtomPair> pair = atomPair(state, state, AtomLevel::Axis);
  if (!pair) {
    throwInternalError(
        fmt::format("[planner] the digits of {} cut an axis in ways that do not nest", state.toString()));
  }
  return *std::move(pair);
}

RedistributionPlan transferPlan(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                                const PlanOptions& options) {
  const AtomPair source = ownAtoms(from);
  const AtomPair target = ownAtoms(to);
  const TileTransfer transfer = tileTransfer(shape, source.on.atoms, source.from, target.on.atoms, target.to);
  RedistributionPlan plan;
  plan.steps.push_back({.kind = Collective::Transfer,
                        .on = source.on,
                        .axes = transfer.crossed,
                        .before = source.from,
                        .after = target.to,
                        .to = target.on});
  plan.elements = transfer.received;
  const double beta = haveSameDevices(from.mesh, to.mesh) ? 1 : options.betaBetween;
  plan.cost = options.alphaPeer * static_cast<double>(transfer.peers) +
              beta * static_cast<double>(std::max(transfer.received, transfer.sent));
  return plan;
}

void append(RedistributionPlan& plan, RedistributionPlan more) {
  for (CommStep& step : more.steps) {
    plan.steps.push_back(std::move(step));
  }
  plan.cost += more.cost;
  plan.elements += more.elements;
  plan.peakState = std::max(plan.peakState, more.peakState);
  plan.bound = std::max(plan.bound, more.bound);
}

}  // namespace

RedistributionPlan planBetween(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                               const PlanOptions& options) {
  std::vector<ShardState> sources{withoutSums(from)};
  std::vector<ShardState> targets{withoutSums(to)};
  for (std::vector<ShardState>* side : {&sources, &targets}) {
    ShardState wide = spread(side->front());
    if (!provenEqual(wide, side->front())) {
      side->push_back(std::move(wide));
    }
  }
  PlanOptions inside = options;
  inside.direct = DirectChoice::Fallback;
  std::vector<RedistributionPlan> leaving;
  std::vector<RedistributionPlan> finishing;
  for (const ShardState& source : sources) {
    leaving.push_back(planRedistribution(from, source, inside));
  }
  for (const ShardState& target : targets) {
    finishing.push_back(planRedistribution(target, to, inside));
  }
  std::optional<RedistributionPlan> best;
  for (size_t s = 0; s < sources.size(); s++) {
    for (size_t t = 0; t < targets.size(); t++) {
      RedistributionPlan plan = leaving[s];
      append(plan, transferPlan(sources[s], targets[t], shape, options));
      append(plan, finishing[t]);
      if (!best || plan.cost < best->cost - 1e-9) {
        best = std::move(plan);
      }
    }
  }
  return *best;
}

}  // namespace meshfuse
