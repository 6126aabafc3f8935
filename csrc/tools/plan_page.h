// A plan as one self-contained page, as page.h makes of an explanation.
#pragma once

#include <string>
#include <string_view>

namespace meshfuse {

struct AutoPlan;
struct DistributedConfig;

// title: the name of the program's file. Deterministic.
[[nodiscard]] std::string planPage(std::string_view title, const AutoPlan& plan, const DistributedConfig& machines);

}  // namespace meshfuse
