// partialize_reductions: a reduction over a sharded dim becomes a local reduction and a combination across ranks.
//
//   T0 S0(x), T1 = reduce(T0, op=sum) [r{8}]      T2 = reduce(T0, op=sum)  root r{8}, logical [pDIDx{4}, r{2}]
//                                             ->  T3 = redistribute(T2, reduce sum over its dim 0)
//
// The same for matmul and linear over a sharded K: a bias is split off and added once, after. The same for embedding,
// take_along_axis, gather and index_select along a sharded dim: their result is a sum with one nonzero term, on one rank.
// With PassSettings::reduceInFloat sums of 16-bit types are Float until they are combined and the bias is added.
// Equal reductions of one tensor are combined once, for all their readers.
// If the user reduces a partial sum over its Partial dim, this reduction is the combination.
// The result becomes a partial sum over an axis (the axis takes part) if the axis owns reduced dims of some operand and, of each other
// operand except the bias, only reduced dims or no dim. In a product it also takes part if it owns other dims of some operands, none of
// them the dim that it owns in the result, and moving these operands to the reduced dims takes fewer bytes. It takes no part in a product
// if it owns a dim of the result but dims of only one operand, and moving that operand to the result's rows or columns takes fewer bytes.
// Runs after propagate_shardings. On exit an axis owns a reduced or indexed dim of an operand only if the result is partial over it, or if
// another operand uses the axis for another dim, or if moving the operand takes fewer bytes than combining partial sums (a redistribution
// then moves the operand). Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool partializeReductions(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
