// TransformReplay: the loop transforms of one tensor done to another, through the dims that an op links.
//
//   T0 [N, K]  split(0, 2 outer) DIDx        T1 = sum over K of T0 : [N, r{K}]
//   replayLoop(T0, T1)                       T1 [DIDx{2}, N/2, r{K}]
//
// Works both ways along an edge. From a result to its operand the result's root -> logical transforms come along, so an operand
// of a reshape is split as its result is; from an operand to a result, a transform that the result's root -> logical part has
// already made counts as done. What cannot be done (through a resize, a window, indexed data, or a dim that is cut otherwise)
// is left out, and `complete` says so.
//
// The transforms are added to the loops as they stand; call resetLoop() first for a replay from scratch.
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

// `from` and `to` are operand and result of one expr, in either order; UserError otherwise. Of several edges the first counts.
// Loop dims of `to` that correspond stand in from's order afterwards, in the places they had. Bindings go to loop dims that
// are not bound, and never from a plain to a broadcast dim.
ReplayResult replayLoop(const TensorView& from, TensorView& to, ReplayBindings bindings = ReplayBindings::Copy);

// Between any two tensors: logical dims of `to` correspond to the dims of `from` in their groups; where a group has several, in
// order.
ReplayResult replayLoop(const TensorView& from, TensorView& to, const IdGraph& ids,
                        ReplayBindings bindings = ReplayBindings::Copy);

}  // namespace meshfuse
