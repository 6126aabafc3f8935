// plan_redistributions: writes the plan of every Redistribute, and of every halo exchange, into the attributes of its op.
//
//   T1 = redistribute(T0)     T0 S0(x), T1 S1(x)      ->      T1 = redistribute(T0, plan=[all_to_all(x)])
//   T1 = slice(T0, plan=[]), T2 = pad(T0, plan=[])    ->      T1 = slice(T0, plan=[shared 0(x)]), T2 = pad(T0, plan=[shared 0(x)])
//
// The steps come from the redistribution planner (multidevice/sharding/planner.h) for the shardings of operand and result; a plan of
// only slices receives nothing. Halo exchanges of one tensor are shared if one transfer costs no more than two. A plan in the text is checked
// and not changed. Localization translates the steps; ranks compare them before anything runs.
// Before: all shardings are final; sizes are constants, or symbols with values in PlanMemo, for which the steps are planned. UserError if
// the steps do not hold for all values of the symbols. After: every Redistribute between two placed tensors has a plan, without steps if
// nothing moves; it has none only while a size, or the size of a mesh axis, has no value. Idempotent. The pass never changes shardings.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool planRedistributions(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
