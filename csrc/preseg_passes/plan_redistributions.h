// plan_redistributions: writes the plan of every Redistribute into its attributes.
//
//   T1 = redistribute(T0)     T0 S0(x), T1 S1(x)      ->      T1 = redistribute(T0, plan=[all_to_all(x)])
//
// The steps come from the redistribution planner (multidevice/sharding/planner.h) for the shardings of operand and result; a plan of
// only slices receives nothing. Localization translates the steps; ranks compare them before anything runs.
// Before: all shardings are final, sizes are constant. After: every Redistribute between two placed tensors has a plan, unless
// the sharding does not change. Idempotent. The pass never changes shardings.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool planRedistributions(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
