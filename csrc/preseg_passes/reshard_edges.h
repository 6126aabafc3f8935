// Rewrites of single Redistributes: each reduces the bytes to move, or removes a Redistribute without more bytes.
//
//   compose   T1 = redistribute(T0), T2 = redistribute(T1)       ->   T2 = redistribute(T0)
//   narrow    T1 = redistribute(T0), read only in parts          ->   T1 has only the parts that its readers need
//   sink      T1 = redistribute(T0), T2 = narrowing cast(T1)     ->   T3 = cast(T0), T2 = redistribute(T3)
//   hoist     T1 = broadcast(T0), T2 = redistribute(T1)          ->   T3 = redistribute(T0), T2 = broadcast(T3)
//
// User-sharded tensors, inputs and outputs keep their sharding, and no contraction is repeated on more ranks than before.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

// Before and after: only Redistributes communicate. True if the fusion changed.
bool rewriteReshardEdges(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
