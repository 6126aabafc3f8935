// localize: the per-rank program. The SPMD cut: from here on no op reads an implicit coordinate.
//
//   mesh {x: 4}, T0 S0(x) [8], T1 = reduce(T0), T2 = redistribute(T1)
//   ->  T0 [2], T1 = reduce(T0), T2 = communicate(T1, all_reduce over x)
//
// Shapes are those of one rank. Coordinates are symbols `coord.<axis>`: a local edge becomes a slice at such an offset, index-valued
// ops get their global offsets from them. A Redistribute becomes the steps of its plan: each collective on contiguous shapes,
// with a reshape and permute before (pack) and after (unpack) where digits have to move; a gather of the outermost digit needs
// none. Tensors have no mesh any more; meshes() keeps those that collectives name.
// Before: decompose_reshardings, constant sizes. After: the fusion verifies, has the same inputs and outputs, no Redistribute.
#pragma once

#include <cstdint>
#include <memory>

namespace meshfuse {

class Fusion;

// Without a mesh anywhere: a copy. Where parts are uneven the program is that of `rank`, with its sizes as constants: ranks have the
// same collectives in the same order then, and else different programs. Everywhere else all ranks have the same program.
[[nodiscard]] std::unique_ptr<Fusion> localize(const Fusion& global, int64_t rank = 0);

}  // namespace meshfuse
