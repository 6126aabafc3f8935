// Adds partial sums before they are combined, so that they need only one collective.
//
//   T2 = redistribute(T0 P(x))
//   T3 = redistribute(T1 P(x))        ->   T6 P(x) = add(T0, T1)
//   T4 = add(add(T2, T9), T3)              T4 = add(redistribute(T6), T9)
//
// It handles trees of additions whose results are read once and have one sharding, for types of 32 bits or more: 16-bit sums in another
// order would be rounded more often. Linear ops (reshard_partials.h) between the additions are allowed:
//
//   T4 = add(mul(redistribute(T0 P(x)), 2), redistribute(T1 P(x)))     ->     T4 = redistribute(add(mul(T0, 2), T1))
//
// Other terms of the tree, such as a bias, are added once as before. The rewrite is done if no more bytes are combined.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

// Before and after: only Redistributes communicate. True if the fusion changed.
bool addPartialSums(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
