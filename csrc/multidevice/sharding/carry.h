// Carrying shardings across one expression: which axes of an operand its result can have too, and the other way round.
//
//   T2 = linear(T0[B, K], T1[N, K]), T1 S0(x)      forward from T1: T2 gets S1(x)
//   T2 = reshape(T0[B, 12]) -> [B, 3, 4], T2 S1(x)   backward: T0 gets S1(x), the same digits
//
// An axis is added to a tensor that has none of its digits yet, where all its digits arrive on free ones; nothing is moved or
// removed. A digit of a reduced dim, of a dim read by data, or of one that a window cuts is not carried. Backward, digits that fall
// on no dim of the operand, or on one that the op stretches, are left out: the operand takes the other part of the axis.
#pragma once

#include <optional>
#include <string>

#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

class Expr;

// Adds to `state`, of tensor output `result`, the axes of `from`, the state of operand number `operand`. True if it grew.
bool carryForward(const Expr* expr, int operand, const ShardState& from, const TensorView* result, ShardState& state,
                  const Prover& prover = {});
// Adds to `state`, of operand number `operand`, the axes of `from`, the state of `result`. True if it grew.
bool carryBackward(const Expr* expr, const TensorView* result, const ShardState& from, int operand, ShardState& state,
                   const Prover& prover = {});
// Why a reshape lets an axis of its operand through to no dim of its result: the digit is opaque there. Empty if there is none.
[[nodiscard]] std::string opaqueInReshape(const Expr* expr, const ShardState& from, const TensorView* result,
                                          const Prover& prover = {});
// Adds to `state` the axes of `more` that it lacks, where their digits are free; both are of one tensor. True if it grew.
bool addAxes(ShardState& state, const ShardState& more, const Prover& prover = {});

}  // namespace meshfuse
