// remove_unneeded_sets: a Set whose result is placed as its operand is, and which has no memory order of its own, goes.
//
//   T1 = set(T0), T2 = add(T1, 1)      ->      T2 = add(T0, 1)
//
// A result that is an output stays: outputs have memory of their own. Before: decompose_reshardings. Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool removeUnneededSets(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
