// The tile program that combines the operands of a reduction, one of each rank.
#pragma once

#include <cstdint>

#include "tensor/reduce_op.h"
#include "tile/tile.h"

namespace meshfuse {

struct Combination {
  int64_t ranks = 1;
  DataType type = DataType::Float;
  ReduceOp op = ReduceOp::Sum;
  int64_t alignment = 1;  // of the result, in bytes
  friend auto operator<=>(const Combination&, const Combination&) = default;
};

// The operands of the ranks lie one after the other; their begins are multiples of this many bytes apart.
inline constexpr int64_t kOperandAlignment = 16;

// For a GPU: result[i] = operands[0][i] op operands[1][i] op ..., as reduceInRankOrder() of multidevice/transport does it, with the same bits but for those of NaN.
// Slots: the addresses of the operands and of the result, the number of elements, and the distance of two ranks' operands in elements, a
// multiple of kOperandAlignment bytes.
[[nodiscard]] tile::Program combineProgram(const Combination& of);

}  // namespace meshfuse
