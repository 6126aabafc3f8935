// What an error about an index out of range tells the user: the op that was called, and where the index is.
#pragma once

#include <span>

#include "base/refused_index.h"
#include "tensor/argument.h"

namespace meshfuse {

class Binding;
struct CompiledProgram;

// The error with the name of the op and the position of the index in the whole index tensor:
//
//   [run] embedding_fwd: index 9 is out of range for an extent of 5, at [0, 3] of input ids (T1); give 0 <= index < 5
//
// program: of the call that has failed, with its sizes as constants; binding: that of the call, null if an earlier call may have refused the
// index; inputs: the arguments of this rank. The rank finds the index in what the call has left in memory, or the interpreter computes it
// again from there: so the position is known also if the index came from other ranks. The error names the op only, or all ops that may
// have refused the index, if there is no binding, if the index depends on another refused index, or if it was no tensor of integers in
// memory and later steps have written over what it was computed from.
[[nodiscard]] RefusedIndexError withPosition(const RefusedIndexError& error, const CompiledProgram& program,
                                             const Binding* binding, std::span<const Argument> inputs);

}  // namespace meshfuse
