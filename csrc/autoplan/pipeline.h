// searchPipeline: the fastest pipeline of a program: its stages as ranges of parts, their devices, and the schedule.
//
// Stages take their devices in order, so all lie machine by machine. A stage has as many devices as a machine, or that number divided by
// its smallest prime factor again and again (8, 4, 2, 1 of 8); or whole machines, their number divided in the same way (6, 3 of 12
// machines, but not all). A stage begins at a multiple of its devices, or at a machine. With 1F1B stages may have different numbers of
// devices, with an interleaved schedule all have the same, and in a program of many parts the search takes only stages whose times differ
// by at most a quarter from the average.
//
// The search descends stage by stage, in the order of a bound, and leaves stages that cannot lead to a pipeline faster than the best one.
// With t the time of a micro-batch on a stage, f and b its passes, w the number of micro-batches in flight and m the number of all
// micro-batches, a 1F1B pipeline takes at least
//
//   sum of t of the stages before s, + m t(s)            s begins after them, is busy, and gradients return through them
//   sum of all t + (m - w(s)) f(s) + (m - 1) b(s)        the first micro-batch passes all stages, then s has the rest to do
//
// for each stage s; without a backward pass the second is the time itself. The least values for the stages that are left follow from
// dynamic programming over parts, devices and stages. All pipelines that are reached are simulated turn by turn. A descent ends after
// some tries; in small programs it never does, and the best pipeline is found.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autoplan/pipeline_schedule.h"
#include "autoplan/stage_costs.h"

namespace meshfuse {

inline constexpr int64_t kMostVirtualStages = 4;

struct FoundPipeline {
  PipelineSchedule schedule;
  std::vector<StageOfParts> stages;
  std::vector<StagePlan> plans;       // by stage
  std::vector<int64_t> firstDevices;  // by stage
  double seconds = 0;                 // of a call
  double bound = 0;                   // no pipeline of the stages' plans is faster; 0 if the deadline ended the search
  bool isLate = false;
};

// The numbers of devices that a stage may have, ascending; not all devices.
[[nodiscard]] std::vector<int64_t> stageSizes(const DistributedConfig& machines);

struct PipelineWishes {
  int64_t microBatches = 2;
  std::optional<int64_t> groups;  // nothing: any number from 2 on
  Deadline deadline = Deadline::max();
};

// Nothing if no pipeline fits in memory.
[[nodiscard]] std::optional<FoundPipeline> searchPipeline(StageCosts& costs, const ProgramParts& parts,
                                                          const DistributedConfig& machines,
                                                          const PipelineWishes& wishes);

}  // namespace meshfuse
