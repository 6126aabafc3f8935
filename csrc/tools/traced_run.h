// Runs that leave a trace: one warm call on each rank.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "exec/trace.h"
#include "tensor/argument.h"

namespace meshfuse {

class Communicator;
class Fusion;

// The parts of global inputs that a rank holds, with memory of their own: a program may write to its inputs.
[[nodiscard]] std::vector<Argument> inputsOfRank(const Fusion& fusion, std::span<const Argument> inputs, int rank);

// The spans of one rank.
struct RankSpans {
  int rank = 0;
  std::vector<TraceSpan> spans;
};

// The second call of a program with these global inputs on `ranks` virtual ranks, which begins on all of them together.
[[nodiscard]] std::vector<RankSpans> traceVirtualRanks(const Fusion& fusion, std::span<const Argument> inputs,
                                                       int ranks);

// Collective: the traces of all ranks as the text of one file, on rank 0; empty on the others.
[[nodiscard]] std::string gatherTrace(Communicator& communicator, const Trace& trace);

}  // namespace meshfuse
