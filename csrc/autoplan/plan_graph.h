// PlanGraph: the choices that a plan makes for a program on one mesh, with their costs in time and memory.
//
// A node is a tensor with the tensors that follow it: results of elementwise ops whose operands of the same shape all belong to the node.
// They have one placement. A choice of a node is a placement of an input, or a strategy of the op. If a result may be a partial sum, or the
// user annotated it, the strategy and the placement of the result are two nodes: the edge between them costs the combination. An edge
// joins a node with a node that reads one of its tensors: its cost is the redistribution from the placement that is held to the one that
// is needed. A bias is read by the combined result. If several products read a tensor, a node in between stands for the copy that they
// share.
//
// Choices and tables are shared by ops of equal kind, attributes, shapes and types: repeated layers cost as much as one.
//
// Memory, in the steps of program_steps.h: inputs and outputs live all the time, other tensors that reach memory from the step that makes them
// to the last one that reads them, redistributed copies during the step that reads them. Results that no other step reads, and views, take
// none.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "autoplan/cost_graph.h"
#include "autoplan/costs.h"
#include "autoplan/machine.h"
#include "autoplan/strategies.h"

namespace meshfuse {

class Expr;
class Fusion;
class TensorView;

struct OpChoice {
  Strategy strategy;
  double compute = 0;  // seconds
};

struct StoredTensor {
  int64_t id = 0;
  int64_t firstStep = 0;
  int64_t lastStep = 0;
  int64_t size = 0;  // bytes of an element
};

struct PlanNode {
  int64_t head = 0;              // id of its first tensor
  const Expr* expr = nullptr;    // nullptr: an input, or a copy
  bool isCopy = false;           // of the tensor `head`, for the ops that read it
  std::vector<int64_t> tensors;  // ids; of a copy none, and of strategies whose result is another node
  Sizes shape;
  std::vector<Placement> placements;                     // by choice
  std::shared_ptr<const std::vector<OpChoice>> choices;  // of an op, unless its strategies are another node
  int64_t strategies = -1;                               // the node with the strategies of its op
  std::vector<StoredTensor> stored;
  std::vector<double> elements;  // by choice: of a tensor, on the fullest rank
};

struct EdgeTables {
  PairTable seconds;
  PairTable bytes;
  PairTable copied;  // bytes of memory that the redistributed operand takes, or the partial sum
};

struct PlanEdge {
  int64_t from = 0;  // nodes
  int64_t to = 0;
  int64_t step = 0;  // of the reading op, or of the op whose result is combined
  std::shared_ptr<const EdgeTables> tables;
};

struct PlanGraph {
  DeviceMesh mesh;
  std::vector<PlanNode> nodes;
  std::vector<PlanEdge> edges;
  std::map<int64_t, int64_t> nodeOf;  // by id of a tensor
  int64_t steps = 0;
  CostGraph costs;  // seconds

  // Memory by step, in bytes on the fullest rank.
  std::vector<double> memoryOf(const std::vector<int64_t>& choices) const;
  double bytesOf(const std::vector<int64_t>& choices) const;  // received by a rank
};

// The type in which partial sums are combined: that of the result, or the one in which it is accumulated, as with
// PassSettings::reduceInFloat.
enum class SumType : uint8_t { Result, Accumulated };

// All sizes of the fusion are constants. Errors as autoParallelize().
[[nodiscard]] PlanGraph planGraph(const Fusion& fusion, const DistributedConfig& machines, const DeviceMesh& mesh,
                                  Division division, SumType sums = SumType::Result);

// The costs with multipliers: memory at each of these steps costs so many seconds a byte.
[[nodiscard]] CostGraph withMemory(const PlanGraph& graph, const std::map<int64_t, double>& secondsPerByte);

}  // namespace meshfuse
