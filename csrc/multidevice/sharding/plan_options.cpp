#include "multidevice/sharding/plan_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "base/ranges.h"
#include "ir/fusion.h"

namespace meshfuse {

namespace {

bool isForbiddenMove(const PlannerSettings& settings, std::string_view move) { return contains(settings.forbid, move); }

}  // namespace

PlanOptions planOptions(const PlannerSettings& settings, const DeviceMesh& from, const DeviceMesh& to) {
  std::vector<Collective> forbid;
  for (const std::string& move : settings.forbid) {
    if (const std::optional<Collective> kind = parseCollective(move); kind && *kind != Collective::Transfer) {
      forbid.push_back(*kind);
    }
  }
  return {.alphas = settings.alpha,
          .beta = settings.beta,
          .betaBetween = settings.betaBetween,
          .bound = settings.bound,
          .forbid = std::move(forbid),
          .permutes = !isForbiddenMove(settings, kPermute),
          .transfers = !isForbidden(settings, Collective::Transfer) || !haveSameDevices(from, to),
          .direct = settings.direct};
}

double costAlong(const std::vector<std::string>& axes, const std::map<std::string, double>& costs) {
  double most = 0;
  for (const std::string& axis : axes) {
    most = std::max(most, costAlong(axis, costs));
  }
  return most;
}

bool isForbidden(const PlannerSettings& settings, Collective kind) {
  return isForbiddenMove(settings, identifier(kind));
}

std::vector<std::string> wrongPlannerSettings(const Fusion& fusion) {
  const PlannerSettings& settings = fusion.planner();
  std::vector<std::string> wrong;
  // a slice receives nothing, and other moves contain slices, so it cannot be forbidden
  std::set<std::string_view> moves{kPermute};
  for (const CollectiveTraits& t : filtered(kCollectiveTraits, &CollectiveTraits::inPlans)) {
    moves.insert(t.identifier);
  }
  for (const std::string& move : settings.forbid) {
    if (!moves.contains(move)) {
      wrong.push_back(fmt::format("planner: it has no move '{}' to forbid; it has {}", move, fmt::join(moves, ", ")));
    }
  }
  if (settings.bound && *settings.bound < 1) {
    wrong.push_back(
        fmt::format("planner: the bound is {}; expected a number of elements, at least 1", *settings.bound));
  }
  if (settings.memory && *settings.memory < 1) {
    wrong.push_back(fmt::format("planner: the memory is {}; expected a number of bytes, at least 1", *settings.memory));
  }
  std::set<std::string> axes;
  for (const TensorView* tv : fusion.tensors()) {
    for (int64_t axis = 0; axis < tv->getDeviceMesh().numAxes(); axis++) {
      axes.insert(tv->getDeviceMesh().axisName(axis));
    }
  }
  const auto checkCost = [&](const std::string& what, double cost) {
    if (!(cost >= 0 && std::isfinite(cost))) {
      wrong.push_back(fmt::format("planner: {} is {}; expected a cost in elements, at least 0", what, cost));
    }
  };
  for (const auto& [what, costs] : {std::pair("alpha", &settings.alpha), std::pair("beta", &settings.beta)}) {
    for (const auto& [axis, cost] : *costs) {
      if (!axes.contains(axis)) {
        wrong.push_back(fmt::format("planner: {} is given for an axis '{}'; the meshes have {}", what, axis,
                                    fmt::join(axes, ", ")));
      }
      checkCost(fmt::format("{} {}", what, axis), cost);
    }
  }
  checkCost("the cost between two meshes", settings.betaBetween);
  return wrong;
}

}  // namespace meshfuse
