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

// A slice receives nothing, and other moves contain slices, so it cannot be forbidden.
constexpr Collective kForbiddable[] = {Collective::AllToAll, Collective::AllGather, Collective::ReduceScatter,
                                       Collective::AllReduce};
constexpr std::string_view kPermute = "permute";
constexpr std::string_view kTransfer = "transfer";

}  // namespace

PlanOptions planOptions(const PlannerSettings& settings, const DeviceMesh& from, const DeviceMesh& to) {
  const auto isOut = [&](Collective kind) { return isForbidden(settings, identifier(kind)); };
  return {.alphas = settings.alpha,
          .beta = settings.beta,
          .betaBetween = settings.betaBetween,
          .bound = settings.bound,
          .forbid = filtered(kForbiddable, isOut),
          .permutes = !isForbidden(settings, kPermute),
          .transfers = !isForbidden(settings, kTransfer) || !haveSameDevices(from, to),
          .direct = settings.direct};
}

double costAlong(const std::vector<std::string>& axes, const std::map<std::string, double>& costs) {
  double most = 0;
  for (const std::string& axis : axes) {
    most = std::max(most, costAlong(axis, costs));
  }
  return most;
}

bool isForbidden(const PlannerSettings& settings, std::string_view move) { return contains(settings.forbid, move); }

std::vector<std::string> wrongPlannerSettings(const Fusion& fusion) {
  const PlannerSettings& settings = fusion.planner();
  std::vector<std::string> wrong;
  std::set<std::string_view> moves{kPermute, kTransfer};
  for (const Collective kind : kForbiddable) {
    moves.insert(identifier(kind));
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
