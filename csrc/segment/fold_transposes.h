// fold_transposes: a permute that only library contractions read becomes a view with other strides instead of a copy.
//
//   T1 = permute(T0, order=[1, 0]), T2 = matmul(T1, T3), T0 [M, K] contiguous   ->   layouts[T1] = strides [1, K]
//
// Holds before: a local fusion in which every Matmul and Linear is a library call; after: the same. Idempotent. Permutes of inputs
// that a result is written into are not changed, because a view would read them after the write. Runs last before segmentation,
// which makes a View of every permute in `views`.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if a layout was added.
bool foldTransposes(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
