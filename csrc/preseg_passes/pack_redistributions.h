// pack_redistributions: independent redistributions that are one collective.
//
//   T4 = redistribute(T1, plan=[all_to_all(x)])          T4 = redistribute(T1, plan=[all_to_all(x)], pack=1)
//   T5 = redistribute(T2, plan=[all_to_all(x)])    ->    T5 = redistribute(T2, plan=[all_to_all(x)], pack=1)
//   T6 = redistribute(T3, plan=[all_reduce(x)])          T6 = redistribute(T3, plan=[all_reduce(x)])
//
// Taken together are those whose one communication is of the same kind, axes, type and reduction, with equal parts or a whole on each
// rank, in the order in which they are ready, up to PassSettings::bucketBytes. What is packed
//
//   waits for nothing it did not wait for but the others' operands, and is not waited for in a ring;
//   leaves the longest chain of contractions and collectives as long as it was: it is never delayed on it;
//   lies in memory at most one contraction or collective longer: what grows (a gather) is packed with what is needed then, what
//   shrinks (a scatter) with what is ready then.
//
// The bytes received are the same. Localization lays the operands side by side, communicates once, and cuts the result.
// Before: plan_redistributions. After: the same, with numbers from 1 where several are one. Idempotent: what has numbers keeps them.
#pragma once

#include <vector>

namespace meshfuse {

class Expr;
class Fusion;
class PassContext;

bool packRedistributions(Fusion& fusion, PassContext& context);

// All exprs, each after its producers; those of one collective stand together. UserError if the exprs of one pack number cannot be
// one collective.
[[nodiscard]] std::vector<std::vector<Expr*>> inPackedOrder(const Fusion& fusion);

}  // namespace meshfuse
