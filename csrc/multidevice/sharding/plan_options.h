// Planner options from the settings of a program.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

class Fusion;

// The options for a redistribution between tensors on these meshes.
[[nodiscard]] PlanOptions planOptions(const PlannerSettings& settings, const DeviceMesh& from, const DeviceMesh& to);
// The largest cost of these axes in `alpha` or `beta`: a call costs as much as the most expensive link that it crosses.
[[nodiscard]] double costAlong(const std::vector<std::string>& axes, const std::map<std::string, double>& costs);
[[nodiscard]] bool isForbidden(const PlannerSettings& settings, Collective kind);
// The errors in the settings of a fusion, such as unknown moves or axes; empty if there are none.
[[nodiscard]] std::vector<std::string> wrongPlannerSettings(const Fusion& fusion);

}  // namespace meshfuse
