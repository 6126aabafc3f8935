// What an error about an index out of range tells the user: the op that was called, and where the index is.
#pragma once

#include <cstdint>
#include <span>

#include "base/refused_index.h"
#include "ir/fusion.h"
#include "tensor/argument.h"

namespace meshfuse {

// The error with the name of the op and the position of the index in the whole index tensor:
//
//   [run] embedding_fwd: index 9 is out of range for an extent of 5, at [0, 3] of input ids (T1); give 0 <= index < 5
//
// planned: the program of the call; inputs: the arguments of this rank, none if an earlier call may have refused the index. The position is
// known if the index is an input, or a copy or cast of one, or if a rank computes it from its parts of inputs without communication: then the
// interpreter computes the index again from these parts. Otherwise the error names the op only; if several ops may have refused the index,
// the step.
[[nodiscard]] RefusedIndexError withPosition(const RefusedIndexError& error, const Fusion& planned,
                                             std::span<const Argument> inputs, int64_t rank);

}  // namespace meshfuse
