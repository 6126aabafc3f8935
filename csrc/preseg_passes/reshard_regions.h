// Sequence parallelism: scatters a sum instead of copying it to all ranks, so that the following ops run on parts.
//
//   T1 R = redistribute(T0 P(x))                             T1 S1(x) = redistribute(T0): a reduce-scatter
//   T2 R = add(T1, T9 R), T3 R = norm(T2)               ->   T2 S1(x), T3 S1(x): each rank its part
//   T4 S2(x) = linear(T3, T8 S0(x))                          T4 = linear(redistribute(T3) R): an all-gather
//
// The result of an all-reduce gets the axes on one of its dims, and the axes propagate to the tensors computed from it. Propagation ends at
// user-sharded tensors, inputs and outputs, at tensors that use the axes for other dims, and at other redistributions. A tensor that is
// then read only in parts is also computed or received in parts. The pass chooses the dim with the least cost. The rule:
//
//   taken if   bytes received are no more than before, and
//              bytes computed and held  +  callBytes * collectives   are less
//
// where bytes are counted on the busiest rank, for the tensors that the change affects. An all-reduce without following ops is not changed.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

// Before and after: only Redistributes communicate. True if the fusion changed.
bool splitAllReduces(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
