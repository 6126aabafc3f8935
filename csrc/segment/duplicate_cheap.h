// duplicate_cheap: gives every reader its own copy of an op that costs less than a round trip through memory.
//
//   T1 = broadcast(T0); T2 = add(T1, ..); T3 = mul(T1, ..)   ->   T2 reads T1, T3 reads a copy T1'
//
// The copied ops are those of Repeat::Reader (ir/op_rule.h), such as broadcasts, constants, casts and checked indices. So no kernel stores
// such a small tensor for other kernels. An op that reads the result of a reduction is not copied: a copy would repeat the end of that
// kernel. If a library call or a collective reads the result, it is in memory anyway: all readers that are in no kernel share it, and
// kernels read it too unless it is larger than the operand. Results that are fusion outputs keep their op. Holds before and after: a local
// fusion. Idempotent. Runs before segmentation.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if the fusion changed.
bool duplicateCheap(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
