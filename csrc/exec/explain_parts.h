// Parts of an explanation that explain() puts together.
#pragma once

#include <vector>

#include "exec/explain.h"

namespace meshfuse {

struct HostProgram;
struct ShardState;

// The tile of each rank of the mesh; empty if no digits describe the parts.
[[nodiscard]] std::vector<ExplainedTile> explainTiles(const ShardState& state);

// The tensors in memory while a rank runs its steps, in the order of their first step.
[[nodiscard]] std::vector<ExplainedBuffer> explainBuffers(const HostProgram& program);

}  // namespace meshfuse
