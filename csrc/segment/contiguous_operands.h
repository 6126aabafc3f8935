// contiguous_operands: puts a copy before every op that needs a contiguous operand and gets a strided tensor.
//
//   T0 (strides 1, 8), T1 = communicate(T0)   ->   T2 = set(T0), T1 = communicate(T2)
//
// Ops: communicate, bit_cast (also of an input whose memory a result takes). Holds before and after: a local fusion. Idempotent.
// Runs before segmentation.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if the fusion changed.
bool contiguousOperands(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
