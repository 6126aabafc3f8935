// The files of a plan.
#pragma once

#include <filesystem>

namespace meshfuse {

class Fusion;
struct AutoPlan;

// Writes plan.fir and plan.txt into the folder, which is created if needed. UserError naming the path if that is not possible.
void writePlan(const std::filesystem::path& folder, const Fusion& annotated, const AutoPlan& plan);

}  // namespace meshfuse
