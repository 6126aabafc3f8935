// The associative, commutative operations of reductions, collectives and tiles.
//
// And, Or, Xor are bitwise; on Bool they are logical. Max and Min propagate NaN. An empty reduction gives the identity:
// 0, 1, lowest (-inf), highest (+inf), all ones, 0, 0.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "tensor/dtype.h"

namespace meshfuse {

enum class ReduceOp : uint8_t { Sum, Prod, Max, Min, And, Or, Xor };

inline constexpr std::string_view kReduceOpNames[] = {"sum", "prod", "max", "min", "and", "or", "xor"};
[[nodiscard]] constexpr std::string_view name(ReduceOp op) { return kReduceOpNames[static_cast<int64_t>(op)]; }
[[nodiscard]] constexpr bool isBitwise(ReduceOp op) { return op >= ReduceOp::And; }
// Whether elements of the type can be combined: floating numbers have no bits to combine, and the sum of Bools is no Bool.
[[nodiscard]] constexpr bool accepts(ReduceOp op, DataType t) {
  return isBitwise(op) ? !isFloatingPoint(t) : t != DataType::Bool;
}

// The identity in a floating type; And, Or and Xor have none there.
constexpr double floatingIdentity(ReduceOp op) {
  using Limits = std::numeric_limits<double>;
  return op == ReduceOp::Prod  ? 1
         : op == ReduceOp::Max ? -Limits::infinity()
         : op == ReduceOp::Min ? Limits::infinity()
                               : 0;
}

// The identity in an integer type or Bool.
constexpr int64_t integerIdentity(ReduceOp op, DataType t) {
  switch (op) {
    case ReduceOp::Sum:
    case ReduceOp::Or:
    case ReduceOp::Xor:
      return 0;
    case ReduceOp::Prod:
      return 1;
    case ReduceOp::Max:
      return lowestInteger(t);
    case ReduceOp::Min:
      return highestInteger(t);
    case ReduceOp::And:
      return wrapInteger(t, -1);
  }
  return 0;
}

}  // namespace meshfuse
