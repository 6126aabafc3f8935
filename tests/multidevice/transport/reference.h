// What collectives shall compute, written the plain way: one element at a time, in double, int64 or float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "multidevice/transport/communicator.h"

namespace meshfuse {

inline constexpr ReduceOp kReduceOps[] = {ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min,
                                          ReduceOp::And, ReduceOp::Or,   ReduceOp::Xor};

using Bytes = std::vector<std::byte>;

// `count` elements that depend on (seed, rank) only; small values, some special ones if `special`: NaN, infinities, -0,
// numbers that a 16-bit sum would round at each step.
Bytes testData(DataType type, int64_t count, int rank, uint64_t seed, bool special = false);

// Left to right over the inputs.
Bytes referenceReduce(const std::vector<Bytes>& inputs, DataType type, ReduceOp op);

// Elements [begin, begin + count).
Bytes elements(const Bytes& data, DataType type, int64_t begin, int64_t count);
Bytes concatenated(const std::vector<Bytes>& parts);

// -1 if equal; else the first element that differs. NaNs are equal to each other.
int64_t firstDifference(const Bytes& a, const Bytes& b, DataType type);

}  // namespace meshfuse
