// What is linear, computed from the contributions to a sum in place of the sum.
//
//   T1 = redistribute(T0 P(x)), T2 = slice(T1)     ->     T3 P(x) = slice(T0), T2 = redistribute(T3)
//
// Linear are copies, negation, products with finite constants other than zero, quotients by them, casts to wider types, permutes,
// reshapes, slices, and sums over other dims. Where it rounds, it does so for types of 32 bits or more only: of 16 bits a rank's contribution is rounded as seldom as before.
#pragma once

namespace meshfuse {

class Expr;
class Fusion;
class PassContext;
class TensorView;

// Of one tensor that is not a partial sum, and the same for a sum as for its terms added up.
[[nodiscard]] bool isLinear(const Expr* e);

// The op on the contributions to its operand; null, and nothing is added, if these are not where it reads them.
[[nodiscard]] TensorView* ofContributions(const Expr* op, TensorView* partial);

// Combines sums after linear ops that are read once, where fewer bytes are to be combined. For a fusion in which only Redistributes
// communicate, as it is afterwards. True if it changed.
bool delayPartialSums(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
