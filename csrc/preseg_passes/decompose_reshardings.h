// decompose_reshardings: makes every communication a Redistribute, or a halo exchange of a window; afterwards no other edge communicates.
//
//   T0 S0(x), T1 R = set(T0)         ->   T1 = redistribute(T0)
//   T0 S0(x), T1 R = add(T0, 1)      ->   T2 S0(x) = add(T0, 1), T1 R = redistribute(T2)
//   T0 S0(x), T1 S1(x) = permute(..)      before or after the op, wherever fewer elements are moved; after it if equal
//
// Runs after partialize_reductions. On exit every edge is aligned or local, or its consumer is a Redistribute or a window marked with a
// halo exchange (`plan=[]`), which plan_redistributions plans. A tensor is redistributed once for each sharding that its readers need.
// Idempotent.
#pragma once

#include <functional>

namespace meshfuse {

class Expr;
class Fusion;
class PassContext;

bool decomposeReshardings(Fusion& fusion, PassContext& context);
// The same for a fusion in which only the edges of these exprs may communicate; all others are aligned or local.
bool decomposeReshardings(Fusion& fusion, PassContext& context, const std::function<bool(const Expr*)>& among);

}  // namespace meshfuse
