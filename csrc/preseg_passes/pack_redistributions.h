// pack_redistributions: lets independent redistributions share one collective.
//
//   T4 = redistribute(T1, plan=[all_to_all(x)])          T4 = redistribute(T1, plan=[all_to_all(x)], pack=1)
//   T5 = redistribute(T2, plan=[all_to_all(x)])    ->    T5 = redistribute(T2, plan=[all_to_all(x)], pack=1)
//   T6 = redistribute(T3, plan=[all_reduce(x)])          T6 = redistribute(T3, plan=[all_reduce(x)])
//
// It packs redistributions with exactly one communication, of the same kind, axes, type and reduction, with equal parts or the whole tensor
// on each rank, in the order in which they are ready, up to PassSettings::bucketBytes. A packed redistribution
//
//   waits only for its own operand and the operands of the others, and the order of exprs has no cycle;
//   does not extend the longest chain of contractions and collectives;
//   keeps memory at most one contraction or collective longer: all-gathers are packed if their results are needed at the same time,
//   reduce-scatters if their operands are ready at the same time.
//
// The bytes received are the same. Localization lays the operands side by side, communicates once, and cuts the result.
// Runs after plan_redistributions. On exit redistributions that share a collective have a number from 1. Idempotent: existing numbers are
// kept.
#pragma once

#include <vector>

namespace meshfuse {

class Expr;
class Fusion;
class PassContext;

bool packRedistributions(Fusion& fusion, PassContext& context);

// Each inner list holds the exprs of one step: the redistributions with one pack number, or a single expr. A list stands after the lists of
// its producers. An expr that only moves inputs (ir/moved_inputs.h) stands right before its first reader. UserError if the exprs of one
// pack number cannot be one collective.
[[nodiscard]] std::vector<std::vector<Expr*>> inPackedOrder(const Fusion& fusion);

}  // namespace meshfuse
