// Records a trace of one warm call on each rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "exec/trace.h"
#include "tensor/argument.h"

namespace meshfuse {

class Communicator;
class Fusion;

// Copies of a rank's shards of global inputs: a program may write to its inputs.
[[nodiscard]] std::vector<Argument> inputsOfRank(const Fusion& fusion, std::span<const Argument> inputs, int64_t rank);

using Timeline = std::vector<std::vector<TraceSpan>>;  // by rank

// Traces the second call of a program with these global inputs on `ranks` virtual ranks; it begins on all ranks together.
[[nodiscard]] Timeline traceVirtualRanks(const Fusion& fusion, std::span<const Argument> inputs, int64_t ranks);

// Collective. On rank 0, the traces of all ranks as the text of one file; empty on other ranks.
[[nodiscard]] std::string gatherTrace(Communicator& communicator, const Trace& trace);

}  // namespace meshfuse
