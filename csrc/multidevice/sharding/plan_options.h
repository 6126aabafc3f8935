// The planner as a program's settings ask for it: what passes, the executor and reports all call, so that they see the same plans.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "multidevice/sharding/planner.h"

namespace meshfuse {

class Fusion;

// For a redistribution between tensors on these meshes.
[[nodiscard]] PlanOptions planOptions(const PlannerSettings& settings, const DeviceMesh& from, const DeviceMesh& to);
// The plan between two states of a tensor of this fusion.
[[nodiscard]] std::shared_ptr<const RedistributionPlan> planIn(const Fusion& fusion, const ShardState& from,
                                                               const ShardState& to);
[[nodiscard]] bool isForbidden(const PlannerSettings& settings, std::string_view move);
// What is wrong with the settings of a fusion, given what the planner can do and the meshes of its tensors; empty if nothing is.
[[nodiscard]] std::vector<std::string> wrongPlannerSettings(const Fusion& fusion);

}  // namespace meshfuse
