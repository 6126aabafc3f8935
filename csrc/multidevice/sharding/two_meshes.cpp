#include "multidevice/sharding/two_meshes.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "multidevice/sharding/atoms.h"
#include "multidevice/sharding/tile_transfer.h"

namespace meshfuse {

namespace {

// Every axis that owns no digit takes the outermost local digit that it divides, in the first dim that has one.
ShardState spread(const ShardState& state) {
  ShardState out = state;
  for (int64_t axis = 0; axis < state.mesh.numAxes(); axis++) {
    const int64_t n = state.mesh.axisSize(axis).constValue();
    if (n == 1 || contains(state.partial, axis) || out.owns(axis)) {
      continue;
    }
    for (DigitList& dim : out.dims) {
      if (dim.hasParts()) {
        continue;
      }
      std::vector<Digit> digits(dim.digits().begin(), dim.digits().end());
      auto room = std::ranges::find_if(
          digits, [&](const Digit& d) { return d.owner.isLocal() && d.size.constValue() % n == 0; });
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

RedistributionPlan transferPlan(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                                const PlanOptions& options) {
  const AtomPair source = nestedAtoms(from, from);
  const AtomPair target = nestedAtoms(to, to);
  CommStep step{
      .kind = Collective::Transfer, .on = source.on, .before = source.from, .after = target.to, .to = target.on};
  const TileTransfer transfer = tileTransfer(step, shape);
  step.axes = transfer.crossed;
  RedistributionPlan plan;
  plan.steps.push_back(std::move(step));
  plan.elements = transfer.received;
  const double beta = haveSameDevices(from.mesh, to.mesh) ? 1 : options.betaBetween;
  plan.cost = options.alphaPeer * static_cast<double>(transfer.peers) +
              beta * static_cast<double>(std::max(transfer.received, transfer.sent));
  return plan;
}

void append(RedistributionPlan& plan, const RedistributionPlan& more) {
  append(plan.steps, more.steps);
  plan.cost += more.cost;
  plan.elements += more.elements;
  plan.peakState = std::max(plan.peakState, more.peakState);
  plan.bound = std::max(plan.bound, more.bound);
}

}  // namespace

RedistributionPlan planBetween(const ShardState& from, const ShardState& to, const std::vector<int64_t>& shape,
                               const PlanOptions& options) {
  std::vector<ShardState> sources{ShardState{from.mesh, from.dims, {}}};  // without sums
  std::vector<ShardState> targets{ShardState{to.mesh, to.dims, {}}};
  for (std::vector<ShardState>* side : {&sources, &targets}) {
    ShardState wide = spread(side->front());
    if (!provenEqual(wide, side->front())) {
      side->push_back(std::move(wide));
    }
  }
  PlanOptions inside = options;
  inside.direct = DirectChoice::Fallback;
  const std::vector<RedistributionPlan> leaving =
      mapped(sources, [&](const ShardState& source) { return planRedistribution(from, source, inside); });
  const std::vector<RedistributionPlan> finishing =
      mapped(targets, [&](const ShardState& target) { return planRedistribution(target, to, inside); });
  std::optional<RedistributionPlan> best;
  for (int64_t s = 0; s < std::ssize(sources); s++) {
    for (int64_t t = 0; t < std::ssize(targets); t++) {
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
