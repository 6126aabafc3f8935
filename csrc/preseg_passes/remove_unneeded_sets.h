// remove_unneeded_sets: removes a Set whose result has the sharding of its operand and no memory order of its own.
//
//   T1 = set(T0), T2 = add(T1, 1)      ->      T2 = add(T0, 1)
//
// A Set whose result is an output stays, because outputs have their own memory. Runs after decompose_reshardings. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool removeUnneededSets(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
