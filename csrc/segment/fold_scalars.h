// fold_scalars: scalars that depend on no input become constants.
//
//   S6 = cast(4096) : Double, T7 = div(T4, S6)   ->   T7 = div(T4, 4096.0)
//
// Holds before and after: a local fusion. Idempotent. Runs before scheduling, where a constant is cheaper than an argument and
// two layers of one size become one kernel.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if the fusion changed.
bool foldScalars(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
