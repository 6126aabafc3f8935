// Propagation of shardings across one expression: from an operand to the result (forward), and from the result to an operand (backward).
//
//   T2 = linear(T0[B, K], T1[N, K]), T1 S0(x)      forward from T1: T2 gets S1(x)
//   T2 = reshape(T0[B, 12]) -> [B, 3, 4], T2 S1(x)   backward: T0 gets S1(x), the same digits
//
// An axis is added to a tensor if the tensor has no digit of that axis yet and if all digits of the axis can be placed on free digits.
// Digits of a reduced dim, of an indexed dim, and of a dim that a window cuts do not propagate. Propagation never moves or removes an
// axis. Backward, digits that belong to no dim of the operand, or to a dim that the op expands, are left out: the operand gets only the
// other digits of the axis.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class Expr;

// `from` is the state of operand number `operand`. Adds its axes to `state`, the state of the output `result`. True if `state` changed.
bool propagateForward(const Expr* expr, int64_t operand, const ShardState& from, const TensorView* result,
                      ShardState& state, const Prover& prover = {});
// `from` is the state of `result`. Adds its axes to `state`, the state of operand number `operand`. True if `state` changed.
bool propagateBackward(const Expr* expr, const TensorView* result, const ShardState& from, int64_t operand,
                       ShardState& state, const Prover& prover = {});
// The reason why a reshape cannot propagate an axis of its operand: the digit is opaque in the result. Empty if every axis propagates.
[[nodiscard]] std::string opaqueInReshape(const Expr* expr, const ShardState& from, const TensorView* result,
                                          const Prover& prover = {});
// Both states are of one tensor. Adds the axes of `more` that `state` lacks, if their digits are free. True if `state` changed.
bool addAxes(ShardState& state, const ShardState& more, const Prover& prover = {});

}  // namespace meshfuse
