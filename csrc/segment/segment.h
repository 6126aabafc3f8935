// Segmentation: the local fusion cut into steps. Communication stands alone, library calls stand alone, views cost nothing, and
// the rest is gathered into as few kernels as templates accept.
//
// Ops are taken in topological order; each joins all the groups it reads from if some template takes the union, else the
// largest of them that it can, else it starts a group. A join that would make two groups wait for each other is left out.
// Groups that do not read each other join last (join_siblings.h).
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "schedule/template.h"

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
  std::unique_ptr<const Judgement> judgement = nullptr;  // Kernel: of `group`, until the kernel is written
  KernelPlan plan = {};                                  // Kernel: what runs, once it is written
  std::map<int, int> inPlace = {};  // results written into the memory of an input: output Val id -> input Val id
  std::string boundary;             // why it is no larger: the first refusal that ended it; empty if there was none
  std::vector<std::string> joins;   // which of its kernels do not read each other, and why they are one
};

// In execution order; every op of the fusion in exactly one segment. The fusion is as the local passes leave it (table.h).
[[nodiscard]] std::vector<Segment> segment(const Fusion& fusion, const LocalContext& context, const DeviceInfo& device,
                                           std::span<const Template> templates);

// Schedules: the tile program of each kernel, as it runs, and how it binds to the fusion. InternalError if one is wrong.
void writeKernels(std::span<Segment> segments);

}  // namespace meshfuse
