// Schedules of a pipeline: the order in which each group of devices runs the passes of micro-batches, and the time that it takes.
//
// Stages are numbered along the forward pass; stage k is on group k % groups, so a group may have several, its virtual stages. With one
// stage a group the order is 1F1B: a group runs as many forward passes as there are groups from it to the last one, then a backward and a
// forward pass in turn. With several it is interleaved (Narayanan et al., 2021): forward passes of `groups` micro-batches for each of its
// stages in turn, backward passes in the reverse order of stages. 3 groups, 4 micro-batches, F forward, B backward:
//
//   group 0  F0 F1 F2          B0 F3 B1    B2    B3
//   group 1     F0 F1    B0 F2 B1 F3 B2    B3
//   group 2        F0 B0 F1 B1 F2 B2 F3 B3
//
// A program without a backward pass runs all forward passes in order.
#pragma once

#include <cstdint>
#include <vector>

namespace meshfuse {

struct PipelineSchedule {
  int64_t groups = 1;
  int64_t virtualStages = 1;  // of a group; above 1, the number of groups divides that of micro-batches
  int64_t microBatches = 1;
  bool hasBackward = false;

  int64_t stages() const { return groups * virtualStages; }
};

struct PipelineTurn {
  int64_t stage = 0;
  int64_t microBatch = 0;
  bool isBackward = false;
};

// By group.
[[nodiscard]] std::vector<std::vector<PipelineTurn>> turnsOf(const PipelineSchedule& schedule);

// By stage: the most micro-batches that have begun their forward pass and not ended their backward pass; 1 without a backward pass.
[[nodiscard]] std::vector<int64_t> microBatchesInFlight(const PipelineSchedule& schedule);

struct StageSeconds {
  double forward = 0;  // of a micro-batch, with the transfer that the stage receives
  double backward = 0;
  double update = 0;  // once, after all passes
};

// Until the last group is done, if each turn starts as soon as its group is free and the turn that it needs has ended.
[[nodiscard]] double secondsOf(const PipelineSchedule& schedule, const std::vector<StageSeconds>& stages);

}  // namespace meshfuse
