#include "autoplan/costs.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/ranges.h"
#include "multidevice/sharding/plan_options.h"

namespace meshfuse {

namespace {

constexpr int64_t kLargeMesh = 1024;  // ranks, from which on a transfer is not planned message by message
constexpr int64_t kBlock = 8;         // elements along a dim in each block of the small tensor

double elementsOf(const PlanState& state) {
  return productOf(state.dims, [](const PlanDim& dim) { return static_cast<double>(localExtent(dim)); });
}

}  // namespace

PlannerSettings withLinkCosts(PlannerSettings settings, const DistributedConfig& machines, const DeviceMesh& mesh) {
  double fastest = 0;
  double slowest = std::numeric_limits<double>::infinity();
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    const double bandwidth = linkOf(machines, mesh, axis).bandwidth;
    fastest = std::max(fastest, bandwidth);
    slowest = std::min(slowest, bandwidth);
  }
  const bool given = !settings.beta.empty();
  for (int64_t axis = 0; !given && slowest < fastest && axis < mesh.numAxes(); axis++) {
    settings.beta[mesh.axisName(axis)] = fastest / linkOf(machines, mesh, axis).bandwidth;
  }
  return settings;
}

RedistributionCosts::RedistributionCosts(const DistributedConfig& machines, const DeviceMesh& mesh,
                                         const PlannerSettings& settings)
    : mesh_(mesh), axes_(mesh.axisSizes()), options_(planOptions(settings, mesh, mesh)) {
  for (int64_t axis = 0; axis < mesh.numAxes(); axis++) {
    links_.push_back(linkOf(machines, mesh, axis));
  }
  options_.direct = DirectChoice::Fallback;
  options_.bound = std::nullopt;  // in elements of the program's tensors
}

RedistributionCosts::Steps RedistributionCosts::plan(const Placement& from, const std::vector<int64_t>& summed,
                                                     const Placement& to, const Sizes& shape) {
  ShardState before = stateOf(from, shape, mesh_);
  before.partial = summed;
  PlanOptions options = options_;
  const bool isLarge = mesh_.numDevices() > kLargeMesh;
  options.transfers = options_.transfers && !isLarge;
  const RedistributionPlan found = planRedistribution(before, stateOf(to, shape, mesh_), options);
  const double elements = productOf(shape, [](int64_t extent) { return static_cast<double>(extent); });
  Steps steps;
  if (isLarge && options_.transfers &&
      !found.note.empty()) {  // no chain: the tiles that a rank needs are sent directly
    const auto slower = [&](int64_t a, int64_t b) { return links_[a].bandwidth < links_[b].bandwidth; };
    const auto moved = filtered(indices(from), [&](int64_t a) { return from[a] != to[a] || contains(summed, a); });
    const int64_t axis = *std::ranges::min_element(moved, slower);
    return {{Collective::Transfer, axes_[axis], localElements(to, shape, axes_) / std::max(1.0, elements), axis,
             !summed.empty()}};
  }
  for (const CommStep& step : found.steps) {
    if (!step.communicates()) {
      continue;
    }
    std::vector<int64_t> team = step.axes;
    if (team.empty()) {
      team = mapped<int64_t>(indices(step.on.origins), std::identity());
    }
    const auto axisOf = [&](int64_t atom) { return step.on.origins.at(atom).axis; };
    int64_t axis = axisOf(team[0]);
    for (const int64_t atom : team) {
      axis = links_[axisOf(atom)].bandwidth < links_[axis].bandwidth ? axisOf(atom) : axis;
    }
    const double in = elementsOf(step.before);
    const double out = elementsOf(step.after);
    const int64_t ranks = step.on.atoms.teamSize(team);
    const double received =
        step.kind == Collective::Transfer ? out : amountReceived(step.kind, in, out, static_cast<double>(ranks));
    steps.push_back({step.kind, ranks, received / std::max(1.0, elements), axis, !step.before.partial.empty()});
  }
  return steps;
}

CommCost RedistributionCosts::of(const Placement& from, const Summed& summed, const Placement& to, const Sizes& shape,
                                 int64_t size) {
  const bool isEmpty = std::ranges::any_of(shape, [](int64_t extent) { return extent == 0; });
  if (isEmpty || (summed.axes.empty() && from == to)) {
    return {};
  }
  // The pattern: dims by number in order of appearance, and the axes summed; of uneven blocks also the shape.
  std::vector<int64_t> key;
  std::vector<int64_t> names(shape.size(), -1);
  Placement smallFrom(from.size(), kUncut);
  Placement smallTo(to.size(), kUncut);
  int64_t dims = 0;
  const auto rename = [&](int8_t dim) {
    if (dim != kUncut && names[dim] < 0) {
      names[dim] = dims++;
    }
    return dim == kUncut ? kUncut : static_cast<int8_t>(names[dim]);
  };
  for (int64_t axis = 0; axis < std::ssize(from); axis++) {
    smallFrom[axis] = rename(from[axis]);
    smallTo[axis] = rename(to[axis]);
    key.push_back(smallFrom[axis]);
    key.push_back(smallTo[axis]);
    key.push_back(contains(summed.axes, axis) ? 1 : 0);
  }
  const bool isEven = fits(from, shape, axes_, Division::Even) && fits(to, shape, axes_, Division::Even);
  if (!isEven) {
    append(key, shape);
    append(key, mapped<int64_t>(from, std::identity()));
    append(key, mapped<int64_t>(to, std::identity()));
  }
  const auto [entry, isNew] = patterns_.try_emplace(std::move(key));
  if (isNew) {
    const Sizes small(dims, kBlock * productOf(axes_));
    entry->second = isEven ? plan(smallFrom, summed.axes, smallTo, small) : plan(from, summed.axes, to, shape);
  }
  const double elements = productOf(shape, [](int64_t n) { return static_cast<double>(n); });
  CommCost cost;
  for (const Step& step : entry->second) {
    const double received = step.part * elements * static_cast<double>(step.isOfSum ? summed.size : size);
    cost += {links_[step.axis].seconds(step.kind, step.ranks, received), received};
  }
  return cost;
}

}  // namespace meshfuse
