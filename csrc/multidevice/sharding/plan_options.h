// The planner as the settings of a program ask for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

class Fusion;

// For a redistribution between tensors on these meshes.
[[nodiscard]] PlanOptions planOptions(const PlannerSettings& settings, const DeviceMesh& from, const DeviceMesh& to);
[[nodiscard]] bool isForbidden(const PlannerSettings& settings, std::string_view move);
// What is wrong with the settings of a fusion, given what the planner can do and the meshes of its tensors; empty if nothing is.
[[nodiscard]] std::vector<std::string> wrongPlannerSettings(const Fusion& fusion);

}  // namespace meshfuse
