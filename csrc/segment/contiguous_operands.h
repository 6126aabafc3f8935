// contiguous_operands: puts a copy before every op that needs its operand in one piece and gets a strided fusion input.
//
//   T0 (strides 1, 8), T1 = communicate(T0)   ->   T2 = set(T0), T1 = communicate(T2)
//
// Ops: communicate, bit_cast (also of an input whose memory a result takes). Holds before and after: a local fusion. Idempotent. Runs before segmentation.
#pragma once

#include <map>

#include "schedule/group.h"

namespace meshfuse {

// layouts: of fusion inputs, by Val id. True if the fusion changed.
bool contiguousOperands(Fusion& fusion, const std::map<int, Layout>& layouts);

}  // namespace meshfuse
