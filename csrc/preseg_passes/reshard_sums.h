// Partial sums that are added before they are combined: one collective for all of them.
//
//   T2 = redistribute(T0 P(x))
//   T3 = redistribute(T1 P(x))        ->   T6 P(x) = add(T0, T1)
//   T4 = add(add(T2, T9), T3)              T4 = add(redistribute(T6), T9)
//
// All of a tree of additions that are read once and are in one sharding, of types of 32 bits or more: between numbers of 16 bits a
// sum in another order would be rounded more often. Between the additions may stand what is linear (reshard_partials.h):
//
//   T4 = add(mul(redistribute(T0 P(x)), 2), redistribute(T1 P(x)))     ->     T4 = redistribute(add(mul(T0, 2), T1))
//
// What the tree adds besides, a bias for one, is added once as before. Taken if no more bytes are combined.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

// Of a fusion in which only Redistributes communicate, as it is afterwards. True if it changed.
bool addPartialSums(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
