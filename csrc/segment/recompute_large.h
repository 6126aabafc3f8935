// recompute_large: computes an elementwise result again for a reader in another kernel, instead of storing it.
//
//   T1 = exp(T0); T2 = reduce(T1); T3 = div(T1, broadcast(T2))   ->   T3 = div(T1', ..), T1' = exp(T0)
//
// Only where no template takes all of it as one kernel, such as a softmax of few rows that are longer than the caches: both kernels then read
// T0, and T1 is never written. The result must be larger than the caches, and come from one input of the fusion with no larger elements, whose
// elements lie side by side, with at most one elementary function on the way. Its other readers must share one kernel with it. Holds before and
// after: a local fusion. Idempotent. Runs before duplicate_cheap, which copies cheap ops that the new ops read too. Does not handle results
// that a library call or a collective reads, directly or through other ops: they are stored anyway.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if the fusion changed.
bool recomputeLarge(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
