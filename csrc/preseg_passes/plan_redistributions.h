// plan_redistributions: writes the steps of every Redistribute beside it.
//
//   T1 = redistribute(T0)     T0 S0(x), T1 S1(x)      ->      T1 = redistribute(T0, plan=[all_to_all(x)])
//
// Steps are those of the redistribution planner (multidevice/sharding/planner.h) for the shardings of operand and result; a plan of
// slices alone receives nothing. Localization emits them; ranks compare them before anything runs.
// Before: all shardings are final, sizes are constant. After: every Redistribute between two placed tensors has a plan, unless
// nothing changes. Idempotent. Does not change shardings: what could be planned better elsewhere is not its business.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool planRedistributions(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
