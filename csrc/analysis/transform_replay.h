// TransformReplay: repeats the loop transforms of one tensor on another tensor, through the dims that an op links.
//
//   T0 [N, K]  split(0, 2 outer) DIDx        T1 = sum over K of T0 : [N, r{K}]
//   replayLoop(T0, T1)                       T1 [DIDx{2}, N/2, r{K}]
//
// Works both ways along an edge. From a result to its operand the result's root -> logical transforms come along, so an operand
// of a reshape is split as its result is; from an operand to a result, a transform that the result's root -> logical part has
// already made counts as done. A transform that cannot be repeated (through a resize, a window, an indexed dim, or a dim that is split
// differently) is left out, and `complete` is false.
//
// The transforms are added to the existing loops; call resetLoop() first for a replay from scratch.
#pragma once

#include <utility>
#include <vector>

namespace meshfuse {

class Expr;
class IdGraph;
class IterDomain;
class TensorView;

enum class ReplayBindings { Copy, Leave };

struct ReplayResult {
  std::vector<std::pair<IterDomain*, IterDomain*>>
      loop;              // loop dims of `from` and of `to` that correspond, in from's order
  bool complete = true;  // every bound loop dim of `from` has one in `to`
};

// `from` and `to` are operand and result of one expr, in either order; UserError otherwise. If several edges connect them, the
// first one counts. Afterwards the corresponding loop dims of `to` are in from's order, in the positions that they had together.
// A binding is copied only to a loop dim that is not bound, and never from a plain to a broadcast dim.
ReplayResult replayLoop(const TensorView& from, TensorView& to, ReplayBindings bindings = ReplayBindings::Copy);

// For any two tensors: a logical dim of `to` corresponds to the dim of `from` in the same group; if a group has several dims, they
// correspond in order.
ReplayResult replayLoop(const TensorView& from, TensorView& to, const IdGraph& ids,
                        ReplayBindings bindings = ReplayBindings::Copy);

}  // namespace meshfuse
