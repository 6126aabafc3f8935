// merge_top_k: a top-k along a cut dim: each block gives its first k elements, and the first k of these are the result.
//
//   T0 [R, C] S1(x), n blocks                   of each block: its first k elements in order, v, with their positions in T0, g
//   T1 = argsort(T0, dim=1), the first k   ->   v is gathered: V [R, n k]
//   T2 = take_along_axis(T0, T1, dim=1)         c = argsort(V), the first k
//                                               T1 = take_along_axis(g, c), along the cut dim of g
//                                               T2 = take_along_axis(V, c)
//
// A rank receives (n - 1) k elements for each line, and k positions in one sum that partialize_reductions makes of the cut
// take_along_axis, in place of the other blocks. The elements T2 follow from V without another call, and so they do if T0 is the cast of the
// tensor that T2 reads. Equal elements keep their order, because the candidates stand in the order of the blocks, and within a block in
// that of their positions. Uneven blocks are filled with what comes last in the order: NaN, infinities or the bounds of the type, of
// the type before a cast to a wider one, in which candidates move; real elements that are equal to it come first, because they stand before it.
// It leaves the op as it is, and decompose_reshardings gathers the dim, if the result has all elements (a sort), if the dim is cyclic or in
// parts of given sizes, if parts are unknown, or if the candidates take as many bytes as the blocks. A remark gives the bytes. It does not know whether
// another op gathers the operand anyway: then candidates are bytes more.
// Runs after propagate_shardings, and before insert_bounds_checks and partialize_reductions, which handle the ops that this pass makes.
// Idempotent.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool mergeTopK(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
