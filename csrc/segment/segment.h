// Segmentation: the local fusion cut into steps. Communication stands alone, library calls stand alone, views cost nothing, and
// the rest is gathered into as few kernels as the schedulers accept.
//
// Ops are taken in topological order; each joins all the groups it reads from if some scheduler takes the union, else the
// largest of them that it can, else it starts a group. A join that would make two groups wait for each other is left out.
// Groups that do not read each other join last (join_siblings.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "schedule/group.h"

namespace meshfuse {

struct LocalContext;

enum class SegmentKind : uint8_t {
  Kernel,
  Library,      // one matmul or linear that a library takes
  Communicate,  // one collective
  View,         // the result is its operand's memory: no step at run time
  Reference,    // some tensor has no elements: run by the reference interpreter
};

struct Segment {
  SegmentKind kind = SegmentKind::Kernel;
  Group group;
  const Scheduler* scheduler = nullptr;  // Kernel
  std::string boundary;  // why it is no larger: the first refusal that ended it; empty if nothing else was near
  std::vector<std::string> joins;  // what stands beside what, and why
};

// In execution order; every op of the fusion in exactly one segment. The fusion is as the local passes leave it (table.h).
[[nodiscard]] std::vector<Segment> segment(const Fusion& fusion, const LocalContext& context, const DeviceInfo& device,
                                           std::span<const Scheduler> schedulers);

}  // namespace meshfuse
