// Explanation: what the compiler made of a fusion and why, as plain data. `meshfuse explain` prints it, tests assert it.
//
//   Explanation e = cache.explain();
//   e.edges[1]:   T3 -> T4 redistribute, comm, "the producer is a partial sum over x", moves {"all_reduce(x)"}
//   e.steps[0]:   kernel "reduction T2[r{4}, 3]", ops {"add", "reduce"}, boundary "T2[r{2}, 3] goes to communication"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace meshfuse {

struct CompiledProgram;

// A tensor of the planned program, in the global view.
struct ExplainedTensor {
  std::string name;  // T3
  DataType dtype = DataType::Float;
  std::vector<int64_t> sizes;
  std::vector<int64_t> localSizes;  // on one rank
  std::string sharding;             // S0(x) R on {x: 2}
  std::string madeBy;               // op; "input" for inputs
  bool isOutput = false;
};

struct ExplainedEdge {
  std::string from;
  std::string to;
  std::string op;
  std::string relation;            // aligned, local, comm
  std::string reason;              // why not aligned
  std::vector<std::string> moves;  // of a redistribution, in order: "all_gather(x)", "slice(y)"
  std::string note;                // why the moves are not the best kind; else empty
};

struct ExplainedCommunication {
  std::string kind;  // all-reduce
  std::string tensor;
  std::vector<int> team;
  int64_t bytesReceived = 0;  // by this rank; of an all-reduce the mean over its ranks, 2 (n - 1) / n of the tensor
};

// A step of one rank, in execution order; views are none at run time, and are listed.
struct ExplainedStep {
  std::string kind;  // kernel, library, communicate, view, reference, copy (of a result to where it belongs)
  std::string name;  // "softmax T7[8, 16]"
  std::vector<std::string> ops;
  std::vector<std::string> reads;
  std::vector<std::string> writes;
  int64_t bytesRead = 0;  // the sizes of what it reads, each tensor once
  int64_t bytesWritten = 0;
  std::string boundary;            // why it is no larger; empty where nothing else was near
  std::vector<std::string> joins;  // what stands beside what, and why: \"T3[8] beside T2[8]: both read T0[8]\"
};

struct Explanation {
  int rank = 0;
  std::vector<ExplainedTensor> tensors;
  std::vector<ExplainedEdge> edges;
  std::vector<ExplainedCommunication> communications;
  std::vector<ExplainedStep> steps;
  int64_t arenaBytes = 0;
  int64_t peakBytes = 0;  // arguments, results and arena of this rank
  std::vector<std::string> remarks;

  int64_t bytesReceived() const;
};

[[nodiscard]] Explanation explain(const CompiledProgram& compiled, int rank);

}  // namespace meshfuse
