// A plan before its annotations are given to the program, for a caller that compiles the annotated program and may want another plan.
#pragma once

#include <optional>

#include "autoplan/annotate.h"
#include "autoplan/autoplan.h"

namespace meshfuse {

struct UnappliedPlan {
  AutoPlan plan;
  // The program that runPassesBeforeSizes() makes of the annotated one. Nothing if the plan annotates no tensor, or if the program has
  // sizes or mesh axes without a value: what propagates before they have one may differ.
  std::optional<PropagatedProgram> propagated;
};

// The plan that autoParallelize() gives, with its errors. applyPlan() annotates the program with it.
[[nodiscard]] UnappliedPlan unappliedPlan(const Fusion& fusion, const DistributedConfig& machines,
                                          const OptimizationConfig& wishes);

}  // namespace meshfuse
