// Sums that are scattered instead of copied to all ranks, so that what follows is computed in parts: sequence parallelism.
//
//   T1 R = redistribute(T0 P(x))                             T1 S1(x) = redistribute(T0): a reduce-scatter
//   T2 R = add(T1, T9 R), T3 R = norm(T2)               ->   T2 S1(x), T3 S1(x): each rank its part
//   T4 S2(x) = linear(T3, T8 S0(x))                          T4 = linear(redistribute(T3) R): an all-gather
//
// The result of an all-reduce gets the axes on one of its dims, and what is computed from it takes them as in propagation, as far as
// they go: to what is pinned, an input or an output, to tensors that use the axes otherwise, to other redistributions. Whatever is
// read only in parts afterwards is also computed, or received, in parts. Of all dims the cheapest is taken. The rule:
//
//   taken if   bytes received are no more than before, and
//              bytes computed and held  +  callBytes * collectives   are less
//
// where bytes are those of the busiest rank, over what the change touches. Where nothing else follows, an all-reduce stays one.
#pragma once

#include <cstdint>

namespace meshfuse {

class Fusion;
class PassContext;

// Of a fusion in which only Redistributes communicate, as it is afterwards. True if it changed.
bool splitAllReduces(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
