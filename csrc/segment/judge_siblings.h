// Judges whether two groups that do not read each other are better off in one kernel. That a scheduler takes them together is
// known; one launch less and inputs read once are won, so it is asked what is lost:
//
//   the loop        groups without a large input in common join only if they run over the same extents
//                   and are small
//   the structure   a split reduction, a software pipeline, rows in registers stay what they are
//   the direction   what lies along the vector axis is not accessed across it: a transposed copy stays apart
//   room            streams that caches prefetch, rows that caches and registers hold
//   memory in place an update in place stays one
//
// What reads an input of the other one at least as often as it loops wins enough to loop differently: a row's maximum beside
// the exponential of the same row.
#pragma once

#include <optional>
#include <string>

#include "schedule/group.h"
#include "schedule/rows.h"

namespace meshfuse {

// Large tensors of a kernel that joins others, at most.
constexpr size_t kMaxStreams = 64;

// A group that a scheduler takes, how it loops and how a target cuts its axes.
struct GroupLoops {
  Group group;
  Coordinates coordinates;
  KernelAxes axes;
  RowDigits digits;

  GroupLoops(Group g, Coordinates c, const DeviceInfo& device);
};

struct SiblingJudgement {
  std::optional<std::string> refusal;  // why they stay apart
  std::string gain;                    // what joining wins
};
// `joint` is the group of both.
[[nodiscard]] SiblingJudgement judgeSiblings(const GroupLoops& a, const GroupLoops& b, const GroupLoops& joint,
                                             const DeviceInfo& device);

}  // namespace meshfuse
