// privatize_casts: repeats a cast to a wider type for each op that reads it.
//
//   T1 = cast(T0) Half -> Float, T2 = exp(T1), T3 = reduce(T1)   ->   T2 = exp(T1), T4 = cast(T0), T3 = reduce(T4)
//
// Then each use can have its own sharding, a redistribution moves the narrow type, and two kernels that read the wide type do not
// need it in memory. User-sharded casts are not repeated. Before: any fusion; after: a cast to a wider type has one use, unless it is an
// output or user-sharded. A fusion without a mesh is not changed. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool privatizeCasts(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
