// Rewrites of single Redistributes: each leaves fewer bytes to move, or as many and one Redistribute less.
//
//   compose   T1 = redistribute(T0), T2 = redistribute(T1)       ->   T2 = redistribute(T0)
//   narrow    T1 = redistribute(T0), read in parts only          ->   T1 is what its readers need
//   sink      T1 = redistribute(T0), T2 = cast(T1) down          ->   T3 = cast(T0), T2 = redistribute(T3)
//   hoist     T1 = broadcast(T0), T2 = redistribute(T1)          ->   T3 = redistribute(T0), T2 = broadcast(T3)
//
// What is pinned, an input or an output is not moved, and no contraction is repeated on more ranks than before.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

// Of a fusion in which only Redistributes communicate, as it is afterwards. True if it changed.
bool rewriteReshardEdges(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
