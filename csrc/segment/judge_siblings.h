// Judges whether one kernel for two groups that do not read each other is faster than two. A template accepts
// the joint group, which saves a launch and reads shared inputs once. Reasons against one kernel:
//
//   the loop        groups without a large input in common join only if they loop over the same extents and are small
//   the structure   the template judges whether its kernel stays fast (Judgement::refuseParts)
//   memory          an update in place must stay possible
//
// If groups share a large input, their loops may differ, because one read is saved: a row's maximum beside the exponential of the same row.
#pragma once

#include <optional>
#include <string>

#include "schedule/template.h"

namespace meshfuse {

struct SiblingJudgement {
  std::optional<std::string> refusal;  // why the two stay separate kernels
  std::string gain;                    // the gain of joining them
};
// `joint`: the judgement of the group with the ops of both.
[[nodiscard]] SiblingJudgement judgeSiblings(const Judgement& a, const Judgement& b, const Judgement& joint);

}  // namespace meshfuse
