// StageCosts: the fastest plan of a stage on some devices that fits in memory.
//
// A stage is a range of parts of the program of a micro-batch, with the tensors that it receives from other stages as inputs: receiving
// one takes latency + bytes of the device's part / bandwidth of the link, whatever its placement in the other stage. Its objective is the
// time of forward and backward pass of a micro-batch, and of the update divided by the number of micro-batches.
//
// Memory, besides that of the program of a micro-batch: what the backward pass reads of the forward pass, for each further micro-batch in
// flight; a sum over micro-batches, in the parts in which it is added up; rows of inputs and outputs of all micro-batches.
//
// The graph of choices is built once for each number of devices and mesh, and stages take their nodes from it. Stages of equal parts, as of
// repeated layers, are searched once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "autoplan/pipeline_schedule.h"
#include "autoplan/plan_graph.h"
#include "autoplan/program_parts.h"
#include "autoplan/window.h"

namespace meshfuse {

enum class StageLink : uint8_t {
  None,  // nothing is received, or in no time
  Within,
  Between,
};

// A range of parts, on devices that begin at a multiple of their number, or at a machine if they are several machines.
struct StageOfParts {
  int64_t begin = 0;
  int64_t end = 0;  // after the last part
  int64_t devices = 1;
  StageLink before = StageLink::None;  // to the devices of the stage before and after
  StageLink after = StageLink::None;
  int64_t inFlight = 1;  // micro-batches
  double memory = 0;     // bytes of a device
};

struct StagePlan {
  StageSeconds seconds;
  double peak = 0;  // bytes
  DeviceMesh mesh;

  double ofMicroBatch() const { return seconds.forward + seconds.backward; }
};

class StageCosts {
 public:
  using GraphOf = std::function<PlanGraph(const Fusion&, const DistributedConfig&, const DeviceMesh&)>;
  StageCosts(const MicroBatches& micro, const ProgramParts& parts, const DistributedConfig& machines, GraphOf graphOf,
             Deadline deadline);

  // Nothing if no plan fits.
  const std::optional<StagePlan>& of(const StageOfParts& stage);
  // No plan of these parts on so many devices is faster, whatever it receives.
  double least(int64_t begin, int64_t end, int64_t devices);

 private:
  struct Graph {
    PlanGraph graph;
    std::vector<int64_t> nodeOf;       // by tensor
    std::vector<int64_t> costNumbers;  // by node; equal for nodes with equal costs and elements
    std::map<const EdgeTables*, int64_t> tableNumbers;
    std::map<const EdgeTables*, std::shared_ptr<const PairTable>> ofUpdate;  // divided by the number of micro-batches
    std::vector<double> leastOfParts;                                        // seconds
  };
  struct StageGraph;

  std::vector<Graph>& graphsOf(int64_t devices);
  const std::vector<int64_t>& classesOf(int64_t devices);
  StageGraph stageGraph(Graph& from, const StageOfParts& stage) const;
  CostGraph ownCosts(PlanGraph graph) const;
  double leastOf(Graph& g, const StageOfParts& stage);
  std::optional<StagePlan> search(const StageOfParts& stage);

  const MicroBatches& micro_;
  const ProgramParts& parts_;
  const DistributedConfig machines_;
  const GraphOf graphOf_;
  const Deadline deadline_;
  // By tensor:
  std::vector<int64_t> stepOf_;  // of its op
  std::vector<int64_t> owner_;   // the tensor in whose memory it lies
  std::vector<MicroBatchRole> roles_;
  std::vector<std::vector<int64_t>> operands_;       // by step: tensors
  std::vector<int64_t> kernelOf_;                    // by step
  std::map<int64_t, std::vector<Graph>> graphs_;     // by number of devices; one for each mesh
  std::map<int64_t, std::vector<int64_t>> classes_;  // by number of devices: of parts
  std::map<std::array<int64_t, 7>, const std::optional<StagePlan>*> byStage_;
  std::map<std::vector<int64_t>, std::optional<StagePlan>> byClasses_;
};

}  // namespace meshfuse
