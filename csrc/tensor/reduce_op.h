// The associative, commutative operations of reductions, collectives and tiles.
//
// And, Or, Xor are bitwise; on Bool they are logical. Max and Min propagate NaN. An empty reduction gives the identity:
// 0, 1, lowest (-inf), highest (+inf), all ones, 0, 0.
#pragma once

#include <cstdint>
#include <string_view>

namespace meshfuse {

enum class ReduceOp : uint8_t { Sum, Prod, Max, Min, And, Or, Xor };

[[nodiscard]] constexpr std::string_view name(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "prod", "max", "min", "and", "or", "xor"};
  return kNames[static_cast<int>(op)];
}

}  // namespace meshfuse
