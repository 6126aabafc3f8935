// autoParallelize: chooses the sharding of every tensor of a program for a description of machines, and writes it as annotations.
//
//   DistributedConfig machines{.machines = 2, .devicesPerMachine = 4};
//   AutoPlan plan = autoParallelize(fusion, machines, {}, "out");
//   fmt::print("{}", plan.text());        // seconds of a call, the lower bound, bytes, memory, shardings
//   // `fusion` has meshes and bound loops now: compile and run it as if they had been written by hand
//
// The objective is the time of one call on the busiest device, in seconds, under the model of costs.h: each op takes its roofline time,
// each change of sharding the time of its collectives, one after the other. docs/autoplan.md has the formulas.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "autoplan/machine.h"
#include "base/error.h"
#include "multidevice/mesh/device_mesh.h"
#include "preseg_passes/concretize.h"

namespace meshfuse {

class Fusion;

struct OptimizationConfig {
  double maxSeconds = 10;           // time limit of the search under a memory limit; the best plan so far is taken then
  bool allowUneven = false;         // also blocks that do not divide a dim: some ranks hold less
  bool shardOptimizerState = true;  // false: inputs that are only read to update them in place are whole on every rank
  bool reduceInFloat = false;       // the program will run with PassSettings::reduceInFloat
  // The axes of the mesh, outermost first, with sizes. Empty: the mesh of the user's annotations; without annotations one or two axes, as
  // many as make the fastest plan. If the annotations have axes of symbolic size, these are the sizes for which the plan is made; the number
  // of devices determines one that is not given, and the annotated program keeps the symbols.
  std::vector<DeviceMesh::Axis> mesh = {};
  SymbolValues sizes = {};   // values of the symbols in the extents of inputs, for which the plan is made
  bool alternatives = true;  // compute AutoPlan::ideas and PlannedTensor::nextBest
  // A call may run the batch in so many equal parts, one after the other: AutoPlan::pipeline is the best pipeline with them. The batch is
  // dim 0 of the first input that is no parameter, and of the others with that extent.
  std::optional<int64_t> microBatches = std::nullopt;
  std::optional<int64_t> stages = std::nullopt;  // of the pipeline: groups of devices; nothing: as many as are fastest
};

// The sharding of a tensor that the plan annotates.
struct PlannedTensor {
  int64_t id = 0;
  std::string name;               // T3
  std::string sharding;           // S0(x) R
  std::vector<int64_t> axes;      // of the mesh, that cut it
  std::vector<int8_t> placement;  // by axis of the mesh: the dim that it cuts, or -1
  bool byUser = false;            // annotated before, and left as it was
  // Seconds of the best plan in which this tensor has another sharding; none: there is no other, or it was not computed.
  std::optional<double> nextBest;
};

// Costs of an op with the elementwise ops that follow it.
struct PlannedOp {
  std::string name;          // T7 = linear
  std::string strategy;      // rows over dp, contracted over tp
  double compute = 0;        // seconds
  double communication = 0;  // seconds, of its operands and of its partial sum
  double bytes = 0;          // received by a rank
};

// The best plan if inputs may be sharded in one way only.
struct PlannedIdea {
  std::string name;  // data: the batch is cut; tensor: parameters; sequence: dim 1 of data; zero: batch, parameters
  std::optional<double> seconds;  // none: it is not possible, or it does not fit in memory
};

// A group of devices of a pipeline, with the ops that it runs.
struct PlannedStage {
  int64_t firstDevice = 0;
  DeviceMesh mesh;               // of as many devices
  std::vector<std::string> ops;  // "T4 to T19", by virtual stage: of the forward pass
  int64_t numOps = 0;            // of all passes
  double forward = 0;            // seconds, of a micro-batch; with the transfers that the devices receive
  double backward = 0;           // the same
  double update = 0;             // seconds, once in a call
  double memory = 0;             // bytes of a device

  std::string devicesText() const;  // 8 to 15 as 2x4
};

// A call in micro-batches, which several groups of devices run at the same time. Execution does not follow it yet.
struct PlannedPipeline {
  int64_t microBatches = 0;
  int64_t virtualStages = 1;  // stages of each group of devices; 1: the schedule is 1F1B; more: it is interleaved
  bool hasBackward = false;
  double seconds = 0;  // of a call, by the model
  double bound = 0;    // no pipeline that fits in memory is faster, if each stage has its own fastest plan
  double idle = 0;     // share of the time that devices wait, on average
  bool timeLimitReached = false;
  std::vector<PlannedStage> stages;  // none: no pipeline fits in memory

  double gap() const { return seconds > 0 ? (seconds - bound) / seconds : 0; }
  std::string scheduleText() const;  // 1F1B
};

struct AutoPlan {
  DeviceMesh mesh;
  double seconds = 0;             // of a call, by the model
  double bound = 0;               // no plan of the model on `mesh` that fits in memory is faster
  double commBytes = 0;           // received by a rank in a call
  double peakMemory = 0;          // bytes of a device, by the model
  bool timeLimitReached = false;  // maxSeconds ended the search before the gap was small
  double search = 0;              // seconds that the search took; not part of the text, which is the same in every run
  std::vector<PlannedTensor> pins;  // the tensors that the plan annotates
  std::vector<PlannedOp> ops;
  std::vector<PlannedIdea> ideas;
  std::optional<PlannedPipeline> pipeline = std::nullopt;  // if micro-batches were asked for

  double gap() const {
    return seconds > 0 ? (seconds - bound) / seconds : 0;
  }                          // 0.01: at most 1% slower than the best plan
  std::string text() const;  // the report
};

// No plan of the model fits in memoryPerDevice, or none was found. The message says which.
struct NoPlanFits : UserError {
  NoPlanFits(const std::string& message, double bytes, double proven)
      : UserError(message), least(bytes), bound(proven) {}
  double least;  // bytes of a device that would do
  double bound;  // no plan takes fewer bytes
};

// Annotates `fusion`. `outDir`: receives plan.fir, the annotated program, and plan.txt, the report; created if needed; empty: no files.
// Deterministic, unless the time limit ends the search.
// With micro-batches the program is annotated with the best plan without a pipeline.
// UserError, with `fusion` unchanged: a machine description that contradicts itself; a mesh of another number of devices, or with
// several axes without a size; a user's annotation that no strategy allows; an op without a rule, such as a collective; a symbol without a
// size; micro-batches that do not divide the batch, or a program that cannot run in them or in so many stages; NoPlanFits. The memory limit
// holds for the model; exec/plan_within_memory.h has one that holds for the compiled program.
[[nodiscard]] AutoPlan autoParallelize(Fusion& fusion, const DistributedConfig& machines,
                                       const OptimizationConfig& wishes = {}, const std::filesystem::path& outDir = {});

// Writes the annotations of a plan into `fusion`, which must have the same tensors, with the same ids, as the fusion that was planned: a
// clone or the same text.
void applyPlan(Fusion& fusion, const AutoPlan& plan, const DistributedConfig& machines);

}  // namespace meshfuse
