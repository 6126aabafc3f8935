// Judges whether one kernel for two groups that do not read each other is faster than two. A template accepts
// the joint group, which saves a launch and reads shared inputs once. Reasons against one kernel:
//
//   the loop        groups without a large input in common join only if they loop over the same extents and are small
//   the structure   the template judges whether its kernel stays fast (Judgement::refuseParts)
//   memory in place an update in place stays one
//
// Groups that share a large input win enough to loop differently: a row's maximum beside the exponential of the same row.
#pragma once

#include <optional>
#include <string>

#include "schedule/template.h"

namespace meshfuse {

struct SiblingJudgement {
  std::optional<std::string> refusal;  // why they stay apart
  std::string gain;                    // the gain of joining them
};
// `joint` is of the group of both.
[[nodiscard]] SiblingJudgement judgeSiblings(const Judgement& a, const Judgement& b, const Judgement& joint);

}  // namespace meshfuse
