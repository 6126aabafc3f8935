// The reduction of the transports of the host: element by element, in the order of the inputs, left to right.
//
//   out[i] = (((in[0][i] op in[1][i]) op in[2][i]) ...)
//
// 16-bit floating types are reduced in float and rounded once at the end; other types in their own type. Integers wrap.
// Min and Max give NaN if any input is NaN. Bool is logical: Sum, Max and Or are "any", Prod, Min and And are "all".
// And, Or and Xor of the other types act on the bits. The bits of the result depend on the inputs alone, not on how a range is cut into
// calls. Most algorithms pass the inputs of all ranks in the order of the team; algorithms.h names the others.
#pragma once

#include <cstdint>
#include <span>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

// Reduces `count` elements of each input into `out`, which may be one of the inputs, but must not overlap an input in part.
// At least one input. No alignment is needed beyond the element's own.
void reduceInRankOrder(std::span<const void* const> inputs, void* out, int64_t count, DataType type, ReduceOp op);

// True if the bits of a reduction depend on the order of its inputs. Never true for integers, which wrap, and for Bool.
[[nodiscard]] constexpr bool dependsOnOrder(DataType type) { return isFloatingPoint(type); }

// The type of partial results: Float for 16-bit floating types, except for operations on bits; else the type itself.
[[nodiscard]] constexpr DataType accumulatorType(DataType type, ReduceOp op) {
  return isBitwise(op) ? type : accumulateType(type);
}
// Converts elements to accumulators, and rounds accumulators to elements. A copy if both are the same type.
void toAccumulators(const void* from, DataType type, ReduceOp op, void* to, int64_t count);
void fromAccumulators(const void* from, DataType type, ReduceOp op, void* to, int64_t count);

}  // namespace meshfuse
