// localize_fusion: the per-rank program. The SPMD cut: from here on no op reads an implicit coordinate.
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

#include <memory>

namespace meshfuse {

class Fusion;

// Without a mesh anywhere: a copy.
[[nodiscard]] std::unique_ptr<Fusion> localize(const Fusion& global);

}  // namespace meshfuse
