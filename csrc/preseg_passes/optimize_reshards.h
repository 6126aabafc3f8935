// optimize_reshards: moves redistributions to the places with the fewest bytes, and lets ops after a partial sum run on parts.
//
//   T2 S0(x) = cast(T0) to a wider type, T3 R = redistribute(T2)      ->   T4 R = redistribute(T0), T3 = cast(T4)
//
// The rewrites, to a fixpoint: partial sums are added before they are combined (reshard_sums.h), and combined after linear ops that shrink
// them (reshard_partials.h); single redistributions are composed, narrowed, sunk and hoisted (reshard_edges.h); all-reduces become
// reduce-scatters, and the ops after them run on parts (reshard_regions.h). No rewrite increases the bytes received. User-sharded tensors,
// inputs and outputs are not changed. The order of a sum is changed if that saves a collective, but not for 16-bit types.
// Runs after decompose_reshardings. On exit, as before, every edge is aligned or local, except edges of Redistributes and of windows with a
// halo exchange. Idempotent. A program is not changed if a size has no value (PlanMemo holds the values of symbols), if a mesh axis is of
// symbolic size, or if a redistribution or window is planned already; PassSettings::optimizeReshards switches the pass off.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool optimizeReshards(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
