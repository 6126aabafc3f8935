// The files of a plan.
#pragma once

#include <filesystem>
#include <string>

namespace meshfuse {

class Fusion;
struct AutoPlan;

// Writes plan.fir and plan.txt into the folder, which is created if needed. UserError naming the path if that is not possible.
void writePlan(const std::filesystem::path& folder, const Fusion& annotated, const AutoPlan& plan);

// Quantities in reports: 9.22 us, 119 ms, 2 s; 331.8 kB, 80 GB.
[[nodiscard]] std::string planTime(double seconds);
[[nodiscard]] std::string planBytes(double bytes);

}  // namespace meshfuse
