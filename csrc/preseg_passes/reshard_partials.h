// Applies linear ops to the contributions of a partial sum instead of to the combined sum.
//
//   T1 = redistribute(T0 P(x)), T2 = slice(T1)     ->     T3 P(x) = slice(T0), T2 = redistribute(T3)
//
// Linear ops are copies, negation, products with and quotients by finite constants other than zero, casts to wider types, permutes,
// reshapes, slices, and sums over other dims. Ops that round are moved only for types of 32 bits or more, so that 16-bit contributions are
// not rounded more often.
#pragma once

namespace meshfuse {

class Expr;
class Fusion;
class PassContext;
class TensorView;

// True if the op is linear, op(a + b) = op(a) + op(b), has one tensor operand, operand and result are on one mesh, and neither is a partial
// sum. An op that rounds is linear here for types of 32 bits or more only.
[[nodiscard]] bool isLinear(const Expr* e);

// Adds the op on the contributions to its operand; null if these do not have the sharding that the op needs.
[[nodiscard]] TensorView* ofContributions(const Expr* op, TensorView* partial);

// Combines partial sums after linear ops that are read once, if fewer bytes are then combined. Before and after: only Redistributes
// communicate. True if the fusion changed.
bool delayPartialSums(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
