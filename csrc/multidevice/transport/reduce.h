// The one reduction of all transports: element by element, in rank order, left to right.
//
//   out[i] = (((in[0][i] op in[1][i]) op in[2][i]) ...)
//
// 16-bit floating types are reduced in float and rounded once at the end; the other types in themselves. Integers wrap.
// Min and Max give NaN if any input is NaN. Bool is logical: Sum, Max and Or are "any", Prod, Min and And are "all".
// And, Or and Xor of the other types act on the bits. The bits of the result depend on the inputs alone, not on how a range
// is cut into calls; that is why every path of every transport comes through here.
#pragma once

#include <cstdint>
#include <span>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

// Reduces `count` elements of each input into `out`, which may be one of the inputs but not overlap one otherwise.
// At least one input. No alignment is needed beyond the element's own.
void reduceInRankOrder(std::span<const void* const> inputs, void* out, int64_t count, DataType type, ReduceOp op);

// Whether the bits of a reduction hang on the order of its inputs. Not of integers, which wrap, and of Bool.
[[nodiscard]] constexpr bool dependsOnOrder(DataType type) { return isFloatingPoint(type); }

// What partial results are in: Float for 16-bit floating types, but for operations on bits; else the type itself.
[[nodiscard]] constexpr DataType accumulatorType(DataType type, ReduceOp op) {
  const bool onBits = op == ReduceOp::And || op == ReduceOp::Or || op == ReduceOp::Xor;
  return onBits ? type : accumulateType(type);
}
// Elements of a type as accumulators, and accumulators rounded to it. Copies where the two are the same type.
void toAccumulators(const void* from, DataType type, ReduceOp op, void* to, int64_t count);
void fromAccumulators(const void* from, DataType type, ReduceOp op, void* to, int64_t count);

}  // namespace meshfuse
