// The sections of a page, each as markup.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "exec/explain.h"
#include "tools/traced_run.h"

namespace meshfuse {

[[nodiscard]] std::string programSection(const Explanation& e);  // the text, with arcs from producer to consumer
[[nodiscard]] std::string tensorsSection(const Explanation& e);  // shards of each rank
[[nodiscard]] std::string edgesSection(const Explanation& e);    // relations, reasons, plans
[[nodiscard]] std::string stepsSection(
    const Explanation& e);  // kernels and collectives, and why kernels are not larger
[[nodiscard]] std::string memorySection(const Explanation& e);  // the arena, step by step
// `groups`: names of the groups of rows; empty: rank 0, rank 1, ... `lead`: markup before the length of the call.
[[nodiscard]] std::string timelineSection(const Timeline& timeline,
                                          std::string_view lead = "One warm call on virtual ranks of this machine",
                                          const std::vector<std::string>& groups = {});

}  // namespace meshfuse
