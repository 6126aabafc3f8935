// Planned programs on disk, beside the kernels. An entry is the text of a planned program and what PlannedProgram says of it. Its key is a hash
// of everything that a plan follows from, the build of the library included, so an entry of another version is never found.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/pass_settings.h"
#include "base/hash.h"
#include "exec/planned_program.h"

namespace meshfuse {

class DiskCache;
class Fusion;

// Of the plan for these sizes of the arguments and this class. `text`: of the fusion, if it has been printed. Nothing, and the plan is not
// stored, if buildId() is empty, if MESHFUSE_DUMP is set, or if PassSettings::verify is false, as for a program that is planned but never
// run.
[[nodiscard]] std::optional<Hash128> keyOfPlan(const Fusion& fusion, std::span<const std::vector<int64_t>> globalSizes,
                                               const ShapeClass& sizes, const PassSettings& passes,
                                               std::string_view text = {});
// The plan that was stored under `key` for this fusion and this class; null if there is none, or its bytes are no plan.
[[nodiscard]] std::shared_ptr<PlannedProgram> loadPlan(DiskCache& disk, Hash128 key, const Fusion& fusion,
                                                       const ShapeClass& sizes);
// A program that has its text.
void storePlan(DiskCache& disk, Hash128 key, const PlannedProgram& program);
// Gives a planned program its text, and makes it the program that loadPlan() would give: exprs have the order of the text. Ranks that plan a
// program take this one, so that it is the same as that of ranks that load it.
void readPlanned(PlannedProgram& program, const Fusion& fusion);

}  // namespace meshfuse
