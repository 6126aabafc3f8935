// contiguous_operands: puts a copy before every op that needs a contiguous operand and gets a strided tensor.
//
//   T0 (strides 1, 8), T1 = communicate(T0)   ->   T2 = set(T0), T1 = communicate(T2)
//
// Ops: communicate and bit_cast. An input is also copied for a bit_cast, contiguous or not, if a result is written into its memory, because
// the result of a bit_cast is a view of its operand. Holds before and after: a local fusion. Idempotent. Runs before segmentation.
#pragma once

namespace meshfuse {

class Fusion;
struct LocalContext;

// True if the fusion changed.
bool contiguousOperands(Fusion& fusion, LocalContext& context);

}  // namespace meshfuse
