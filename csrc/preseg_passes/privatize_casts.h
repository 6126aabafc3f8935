// privatize_casts: a cast up that several ops read is repeated for each of them.
//
//   T1 = cast(T0) Half -> Float, T2 = exp(T1), T3 = reduce(T1)   ->   T2 = exp(T1), T4 = cast(T0), T3 = reduce(T4)
//
// So that each use can have the sharding it wants, a reshard moves the narrow type, and two kernels that read the wide one do not
// need it in memory. Casts with a mesh are pinned and stay. Before: any fusion; after: no free cast to a wider type that is no
// output has two uses. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool privatizeCasts(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
