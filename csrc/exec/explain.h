// Explanation: the decisions of the compiler about a fusion, with reasons, as plain data. `meshfuse explain` prints it, tests assert it.
//
//   Explanation e = cache.explain();
//   e.edges[1]:   T3 -> T4 redistribute, comm, "the producer is a partial sum over x", moves {"all_reduce(x)"}
//   e.steps[0]:   kernel "reduction T2[r{4}, 3]", ops {"add", "reduce"}, boundary "T2[r{4}, 3] goes to communication"
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "multidevice/mesh/collective.h"
#include "tensor/dtype.h"

namespace meshfuse {

struct CompiledProgram;

// Indices of one dim: [begin, end) each, ascending.
struct ExplainedRanges {
  std::vector<std::pair<int64_t, int64_t>> list;
  bool more = false;  // there are more than kMostExplainedRanges
};
inline constexpr size_t kMostExplainedRanges = 64;

// The part of a tensor that a rank holds: the product of its ranges.
struct ExplainedTile {
  int64_t rank = 0;
  std::vector<ExplainedRanges> dims;
};

// An axis of a mesh.
struct ExplainedAxis {
  std::string name;
  int64_t size = 1;
};

struct ExplainedMesh {
  std::string name;  // as in the program's text: {y: 2, x: 2}[0, 1, 2, 3]
  std::vector<ExplainedAxis> axes;
  std::vector<int64_t> ranks;  // row-major
};

// A tensor of the planned program, in the global view.
struct ExplainedTensor {
  std::string name;   // T3
  std::string label;  // the name of the output or input, if it has one
  DataType dtype = DataType::Float;
  std::vector<int64_t> sizes;
  std::vector<int64_t> localSizes;   // on one rank
  std::vector<int64_t> memoryOrder;  // dims, outermost first; empty where they are row-major
  std::string sharding;              // S0(x) R on {x: 2}
  std::string madeBy;                // op; "input" for inputs
  std::string
      reason;  // where its axes come from: "from T0", "for T5", "as written"; empty for inputs and tensors that passes add
  bool isOutput = false;
  std::string mesh;                  // name; empty: on every rank
  std::vector<std::string> sums;     // axes over which it is a partial sum
  int64_t sumsDim = -1;              // the dim of `sizes` that counts its terms; local sizes and tiles have no such dim
  std::vector<ExplainedTile> tiles;  // by rank of its mesh; empty without a mesh, or if no digits describe the parts
};

struct ExplainedEdge {
  std::string from;
  std::string to;
  std::string op;
  std::string relation;            // aligned, local, comm
  std::string reason;              // why not aligned
  std::vector<std::string> moves;  // of a redistribution, in order: "all_gather(x)", "slice(y)"
  std::vector<int64_t> moveBytes;  // of each move, received by the busiest rank
  // A redistribution on one mesh: a lower bound of the bytes that the busiest rank receives, over all moves, in any plan; 0 for other edges,
  // or if no bound is known.
  double leastBytes = 0;
  int64_t stateBytes = 0;  // the largest part that a rank holds during the redistribution
};

struct ExplainedCommunication {
  Collective kind = Collective::Local;
  BlockForm form = BlockForm::Equal;
  std::string tensor;
  std::vector<int64_t> team;
  std::vector<std::string> axes;  // the mesh axes along which the team lies; none for a transfer of blocks
  int64_t bytesReceived = 0;      // by this rank; of an all-reduce the mean over its ranks, 2 (n - 1) / n of the tensor
  uint64_t program = 0;           // CommSizes::program: the same on all ranks that take part

  std::string name() const { return callName(kind, form); }  // all-reduce
};

// A step of one rank, in execution order. Views are listed too, although nothing runs for them.
struct ExplainedStep {
  std::string kind;  // kernel, library, communicate, view, reference, copy (of a result into its output)
  std::string name;  // "softmax T7[8, 16]"
  std::vector<std::string> ops;
  std::vector<std::string> reads;
  std::vector<std::string> writes;
  int64_t bytesRead = 0;  // the sizes of the tensors that it reads, each once
  int64_t bytesWritten = 0;
  bool runsBeside = false;  // a collective that the next steps run beside
  std::string boundary;     // why the group is not larger; empty if there was no other op to add
  std::vector<std::string>
      joins;  // results in one kernel that do not read each other, and why: "T3[8] beside T2[8]: both read T0[8]"
  std::vector<std::string> text;  // its ops, lines of the program of a rank
};

// A tensor in the memory of a rank while steps [firstStep, lastStep] of its host program run; a view has no buffer of its own.
struct ExplainedBuffer {
  std::string tensor;  // of the program of a rank, or "workspace"
  std::string place;   // argument, result, arena
  int64_t offset = 0;  // in the arena
  int64_t bytes = 0;
  int64_t firstStep = 0;
  int64_t lastStep = 0;
};

// Steps of a rank that a warm call on a GPU makes with one launch of a graph; or a step that is in no graph.
struct ExplainedGraph {
  int64_t steps = 1;
  std::string first;   // step
  std::string last;    // step
  std::string reason;  // why the step is in no graph; empty for a graph
};

struct Explanation {
  int64_t rank = 0;
  std::string device;              // facts about the GPU for which kernels are planned; empty for a CPU
  std::string program;             // the planned program as .fir
  std::vector<std::string> sizes;  // for which the plan holds: "i0 is a multiple of 16 from 16 on"
  std::vector<ExplainedMesh> meshes;
  std::vector<ExplainedTensor> tensors;
  std::vector<ExplainedEdge> edges;
  std::vector<ExplainedCommunication> communications;
  std::vector<ExplainedStep> steps;
  std::vector<ExplainedBuffer> buffers;
  std::vector<ExplainedGraph> graphs;  // in order; none for a CPU
  int64_t arenaBytes = 0;
  int64_t peakBytes = 0;  // arguments, results and arena of this rank
  std::vector<std::string> remarks;

  int64_t bytesReceived() const;
};

[[nodiscard]] Explanation explain(const CompiledProgram& compiled, int64_t rank);

}  // namespace meshfuse
