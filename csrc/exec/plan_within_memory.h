// planWithinMemory: autoParallelize() with a memory limit that holds for the compiled program.
//
//   AutoPlan plan = planWithinMemory(fusion, {.devicesPerMachine = 4, .memoryPerDevice = 80e9}, {}, "out");
//   // plan.peakMemory is the memory planner's: arguments, results, and the arena with workspaces and packing buffers
//
// The plan is compiled for the CPU, without kernels. Ranks with parts of equal sizes are compiled once. If ranks send or receive blocks of
// different sizes, more ranks are compiled, at most 8 in all. If a rank takes more memory than a device has, the limit of the model becomes
// smaller by the same factor, and a new plan is made. After some of these tries, or once OptimizationConfig::maxSeconds have passed, the
// plan of least memory of the model is tried, and no other one follows. Its searches may take 20 seconds more. Compiling counts in
// maxSeconds, but nothing interrupts it.
//
// Counted are arguments, results and the arena of a call, with the workspaces of a CPU with one thread. Not counted are workspaces of more
// threads, scratch memory of kernels, buffers of transports, and what a GPU's kernels and libraries take instead. The processor that plans
// decides on workspaces and, by its caches, on kernels: on another processor the peak, and so the plan, may be another one.
#pragma once

#include <filesystem>

#include "autoplan/autoplan.h"

namespace meshfuse {

// Arguments, files and errors as of autoParallelize(); of the result, `bound` is for all plans of the model that fit in memoryPerDevice.
// Alternatives and the pipeline come from a second search under the last limit of the model. If maxSeconds ends this search before it finds
// the same plan, there are no alternatives; if it finds no plan that fits, there is no pipeline either. UserError, with `fusion` unchanged,
// if no compiled plan fits: it names the least memory that a compiled plan took, and its largest tensors.
[[nodiscard]] AutoPlan planWithinMemory(Fusion& fusion, const DistributedConfig& machines,
                                        const OptimizationConfig& wishes = {},
                                        const std::filesystem::path& outDir = {});

}  // namespace meshfuse
