// Segmentation: cuts the local fusion into steps. Each collective and each library call is a step of its own, views cost nothing, and all
// other ops are grouped into as few kernels as templates accept. A template also decides whether an op becomes a library call.
//
// Ops are processed in topological order. Each op joins all groups that it reads from if some template accepts the union, else the
// largest group that it can join, else it starts a group. A join that would make two groups wait for each other is not done.
// Groups that do not read each other join last (join_siblings.h).
#pragma once

#include <cstdint>
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
  Library,      // one op that a library or a routine of our own computes
  Communicate,  // one collective
  View,         // the result is its operand's memory: no step at run time
  Reference,    // some tensor has no elements: run by the reference interpreter
};

struct Segment {
  SegmentKind kind = SegmentKind::Kernel;
  Group group;
  std::unique_ptr<const Judgement> judgement = nullptr;  // Kernel and Library: of `group`, until the step is written
  KernelPlan plan = {};                                  // Kernel: the kernel that runs, once it is written
  LibraryCall call = {};                                 // Library: the call, once it is written
  std::map<int64_t, int64_t> inPlace =
      {};                          // results written into the memory of an input: output Val id -> input Val id
  std::string boundary;            // why the group is not larger: the first refusal; empty if there was none
  std::vector<std::string> joins;  // results in one kernel that do not read each other, and why
  // Kernel, once it is written: segments with equal programs have equal numbers, from 0 on in the order of their first segments.
  int64_t kernel = -1;
};

// In execution order; every op of the fusion in exactly one segment. The fusion is as the local passes leave it (table.h).
[[nodiscard]] std::vector<Segment> segment(const Fusion& fusion, const LocalContext& context);

// Schedules the steps: writes each library call, the tile program of each kernel and its binding to the fusion. InternalError if a program
// is wrong.
void writeSteps(std::span<Segment> segments);

}  // namespace meshfuse
