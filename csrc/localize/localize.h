// localize: makes the program of one rank. After it no op depends on an implicit rank coordinate.
//
//   mesh {x: 4}, T0 S0(x) [8], T1 = reduce(T0), T2 = redistribute(T1)
//   ->  T0 [2], T1 = reduce(T0), T2 = communicate(T1, all_reduce over x)
//
// Shapes are the local shapes of a rank. Coordinates are symbols `coord.<axis>`: a local edge becomes a slice whose offset depends on
// them, and so do the global offsets of ops such as iota. A Redistribute becomes the steps of its plan: each collective on contiguous
// shapes, with a reshape and permute before (pack) and after (unpack) if digits have to move; a gather of the outermost digit needs
// neither. Tensors no longer have a mesh; meshes() keeps the meshes that collectives name.
// Runs after plan_redistributions. Sizes are constants, or, where all parts are even, expressions of the symbols of input sizes. On exit
// the fusion verifies, has the same inputs and outputs, and no Redistribute.
#pragma once

#include <cstdint>
#include <memory>

namespace meshfuse {

class Fusion;

// A fusion without meshes is copied. If all parts are even and no elements go directly from rank to rank (direct transfers, halo
// exchanges), all ranks of a mesh have the same program. Otherwise the program is that of `rank`, with its sizes as constants. A rank has
// only the communications in which it takes part. Two ranks run their common communications in the same order.
[[nodiscard]] std::unique_ptr<Fusion> localize(const Fusion& global, int64_t rank = 0);

}  // namespace meshfuse
