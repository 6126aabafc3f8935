#include "multidevice/sharding/propagate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "base/ranges.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/size_facts.h"

namespace meshfuse {

namespace {

// Block sizes whose division is now proven exact are no longer rounded up.
std::vector<Digit> digitsOf(const ShardState& state, int64_t axis, const Prover& prover) {
  std::vector<Digit> owned;
  for (const DigitList& dim : state.dims) {
    IntExpr parts = 1;
    for (const Digit& d : dim.digits()) {
      parts *= d.size;
      if (!d.owner.isDevice() || d.owner.axis != axis) {
        continue;
      }
      owned.push_back(d);
      owned.back().bound = dim.isRagged() ? dim.extent() : IntExpr(Digit::kEven);
      if (dim.isRagged() && !dim.hasParts() && ceilDiv(dim.extent(), parts) == d.stride) {
        if (std::optional<IntExpr> exact = prover.divide(dim.extent(), parts)) {
          owned.back().stride = std::move(*exact);
          owned.back().bound = Digit::kEven;
        }
      }
    }
  }
  return owned;
}

// A dim takes uneven parts only from uneven parts of the same extent, or if the axes would cut the same parts; other parts would leave
// ranks empty without need.
bool mayBeRagged(const std::vector<Digit>& more, const IntExpr& extent) {
  return std::ranges::all_of(more,
                             [&](const Digit& d) { return d.bound == extent || ceilDiv(extent, d.size) == d.stride; });
}

// The state with these digits added; nullopt if an axis is already used or a digit does not fit.
std::optional<ShardState> withDigits(const ShardState& state, const std::vector<Digit>& more, const Prover& prover) {
  ShardState out = state;
  for (int64_t k = 0; k < std::ssize(out.dims); k++) {
    const std::vector<Digit> added = filtered(more, [&](const Digit& d) { return d.dim == k; });
    if (added.empty()) {
      continue;
    }
    DigitList& dim = out.dims[k];
    std::vector<Digit> owned = filtered(dim.digits(), [](const Digit& d) { return d.owner.isDevice(); });
    append(owned, added);
    const IntExpr extent = dim.extent(prover);
    dim = fillLocal(k, extent, owned, prover);
    if (dim.isOpaque() || (dim.isRagged() && !mayBeRagged(added, extent))) {
      return std::nullopt;
    }
  }
  return out;
}

bool canPropagate(const ShardState& from, const ShardState& to, int64_t axis) {
  return !to.owns(axis) && !contains(to.partial, axis) && from.owns(axis);
}

bool canPropagateAny(const ShardState& from, const ShardState& to) {
  return std::ranges::any_of(std::views::iota(int64_t{0}, from.mesh.numAxes()),
                             [&](int64_t axis) { return canPropagate(from, to, axis); });
}

int64_t positionOf(const std::vector<IterDomain*>& ids, const IterDomain* id) {
  const int64_t at = positionIn(ids, id);
  return at == std::ssize(ids) ? -1 : at;
}

// Positions in the state of the logical dims of a tensor, -1 for reductions and the partial dim.
std::vector<int64_t> statePositions(const TensorView* tv) {
  const std::vector<IterDomain*> dims = stateDims(tv);
  return mapped(tv->getLogicalDomain(), [&](const IterDomain* id) { return positionOf(dims, id); });
}

// Adds to `state` the axes of `from` that it lacks, one after the other. `arriving` gives the digits that an axis is to own in `state`, or
// nullopt. True if `state` changed.
bool addEachAxis(ShardState& state, const ShardState& from, const Prover& prover, const auto& arriving) {
  bool grew = false;
  for (int64_t axis = 0; axis < from.mesh.numAxes(); axis++) {
    if (!canPropagate(from, state, axis)) {
      continue;
    }
    const std::optional<std::vector<Digit>> digits = arriving(axis);
    std::optional<ShardState> grown = digits ? withDigits(state, *digits, prover) : std::nullopt;
    if (grown) {
      state = std::move(*grown);
      grew = true;
    }
  }
  return grew;
}

// A tensor operand of an expr, and its result.
struct CrossedEdge {
  const Expr* expr;
  int64_t operand;
  const TensorView* result;
};

// Both sides of an expr: the dims of the operand's state, and the root and logical dims of its result.
struct Crossing {
  const Prover prover;
  const std::vector<OperandDim> dims;
  const std::vector<IterDomain*> held;
  const std::vector<IterDomain*>& root;
  const std::vector<IterDomain*>& logical;
  const std::vector<int64_t> positions;  // in the state of the result, by logical dim
  const std::vector<DigitList> overRoot;
  const bool window;

  Crossing(const CrossedEdge& e, const Prover& facts)
      : prover(withReshape(*e.expr, facts)),
        dims(operandDimsOfState(e.expr, e.operand)),
        held(stateDims(e.expr->input(e.operand)->asTensor())),
        root(e.result->getRootDomain()),
        logical(e.result->getLogicalDomain()),
        positions(statePositions(e.result)),
        overRoot(logicalOverRoot(e.result, prover)),
        window(isWindow(*e.expr)) {}

  bool isStretched(int64_t k) const { return !window && stretches(held[k], dims[k], root[dims[k].root]); }
};

// Adds to `state`, on one side of an expr, the axes of `from`, on the other. `cross` appends the digits that a digit of `from` becomes; it
// returns false if the axis does not propagate.
bool propagate(const CrossedEdge& edge, const ShardState& from, ShardState& state, const Prover& facts,
               const auto& cross) {
  if (!(from.mesh == state.mesh) || from.hasOpaqueDim() || state.hasOpaqueDim() || !canPropagateAny(from, state)) {
    return false;
  }
  const Crossing crossing(edge, facts);
  return addEachAxis(state, from, crossing.prover, [&](int64_t axis) -> std::optional<std::vector<Digit>> {
    std::vector<Digit> arrived;
    const bool crosses = std::ranges::all_of(digitsOf(from, axis, crossing.prover),
                                             [&](const Digit& d) { return cross(crossing, d, arrived); });
    return crosses && !arrived.empty() ? std::optional(std::move(arrived)) : std::nullopt;
  });
}

Digit inDim(Digit d, int64_t dim) {
  d.dim = dim;
  return d;
}

}  // namespace

bool propagateForward(const Expr* expr, int64_t operand, const ShardState& from, const TensorView* result,
                      ShardState& state, const Prover& facts) {
  const auto cross = [](const Crossing& c, const Digit& d, std::vector<Digit>& arrived) {
    const OperandDim& dim = c.dims[d.dim];
    if (dim.root == kUnmapped || !survivesWindow(d, dim, c.prover) || c.isStretched(d.dim)) {
      return false;
    }
    const int64_t same = c.window ? dim.root : positionOf(c.logical, c.root[dim.root]);
    const DigitList pieces = same >= 0          ? DigitList({inDim(d, same)})
                             : !d.parts.empty() ? DigitList::opaque()
                                                : fromBase(c.overRoot, {dim.root, d.stride, d.size, d.owner}, c.prover);
    for (const Digit& piece : pieces.digits()) {
      arrived.push_back(inDim(piece, c.positions[piece.dim]));
    }
    return !pieces.isOpaque() && std::ranges::none_of(arrived, [](const Digit& a) { return a.dim < 0; });
  };
  return propagate({expr, operand, result}, from, state, facts, cross);
}

bool propagateBackward(const Expr* expr, const TensorView* result, const ShardState& from, int64_t operand,
                       ShardState& state, const Prover& facts) {
  const auto cross = [&](const Crossing& c, const Digit& placed, std::vector<Digit>& arrived) {
    const Digit d = inDim(placed, positionIn(c.positions, placed.dim));
    const int64_t same = c.window ? d.dim : positionOf(c.root, c.logical[d.dim]);
    const DigitList pieces = same >= 0          ? DigitList({inDim(d, same)})
                             : !d.parts.empty() ? DigitList::opaque()
                                                : toBase(c.overRoot, d, c.prover);
    // what falls on no dim of the operand, or on one that is stretched, is a part of the axis that the operand does without
    const bool mayLack = from.mesh.axisSize(d.owner.axis).isConst();
    for (const Digit& piece : pieces.digits()) {
      const auto reads = [&](int64_t k) { return c.dims[k].root == piece.dim && !c.isStretched(k); };
      const auto ks = indices(c.dims);
      const auto k = std::ranges::find_if(ks, reads);
      if (k == ks.end() ? !mayLack : !survivesWindow(piece, c.dims[*k], c.prover)) {
        return false;
      }
      if (k != ks.end()) {
        arrived.push_back(inDim(piece, *k));
      }
    }
    return !pieces.isOpaque();
  };
  return propagate({expr, operand, result}, from, state, facts, cross);
}

std::string opaqueInReshape(const Expr* expr, const ShardState& from, const TensorView* result, const Prover& prover) {
  if (expr->kind() != ExprKind::Reshape || from.hasOpaqueDim()) {
    return {};
  }
  const std::vector<OperandDim> dims = operandDimsOfState(expr, 0);
  const std::vector<DigitList> logical = logicalOverRoot(result, prover);
  for (const DigitList& list : from.dims) {
    for (const Digit& d : list.digits()) {
      const int64_t root = d.owner.isDevice() ? dims[d.dim].root : kUnmapped;
      if (root != kUnmapped && positionOf(result->getLogicalDomain(), result->getRootDomain()[root]) < 0 &&
          (!d.parts.empty() || fromBase(logical, Digit{root, d.stride, d.size, d.owner}, prover).isOpaque())) {
        return fmt::format(
            "{} of {} is opaque in {}: its digit of dim {}, with stride {} and size {}, is not a digit of any dim "
            "there",
            from.mesh.axisName(d.owner.axis), expr->input(0)->asTensor()->toString(), result->toString(), d.dim,
            d.stride.toString(), d.size.toString());
      }
    }
  }
  return {};
}

bool addAxes(ShardState& state, const ShardState& more, const Prover& prover) {
  return addEachAxis(state, more, prover, [&](int64_t axis) { return std::optional(digitsOf(more, axis, prover)); });
}

}  // namespace meshfuse
