// optimize_reshards: redistributions where they move the fewest bytes, and where what follows a sum can be computed in parts.
//
//   T2 S0(x) = cast(T0) up, T3 R = redistribute(T2)      ->   T4 R = redistribute(T0), T3 = cast(T4)
//
// The rewrites, to a fixpoint: sums are added before they are combined (reshard_sums.h), and combined after linear ops that shrink
// them (reshard_partials.h); single redistributions are composed,
// narrowed, sunk and hoisted (reshard_edges.h); all-reduces become reduce-scatters with the tensors after them in parts
// (reshard_regions.h). No rewrite raises the bytes received. Tensors that the user placed, inputs and outputs stay as they are.
// Sums are combined in another order than written where that is one collective less; numbers of 16 bits are not.
// Before: decompose_reshardings. After: as before, every edge aligned or local but those of Redistributes. Idempotent. Programs of
// symbolic sizes, and those with a planned redistribution, stay as they are; PassSettings::optimizeReshards switches it off.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool optimizeReshards(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
