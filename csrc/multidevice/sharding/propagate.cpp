#include "multidevice/sharding/propagate.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/size_facts.h"

namespace meshfuse {

namespace {

// Block sizes whose division is now proven exact are no longer rounded up.
std::vector<Digit> digitsOf(const ShardState& state, int axis, const Prover& prover) {
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
bool mayBeRagged(const std::vector<Digit>& more, int dim, const IntExpr& extent) {
  return std::all_of(more.begin(), more.end(), [&](const Digit& d) {
    return d.dim != dim || d.bound == extent || ceilDiv(extent, d.size) == d.stride;
  });
}

// The state with these digits added; nullopt if an axis is already used or a digit does not fit.
std::optional<ShardState> withDigits(const ShardState& state, const std::vector<Digit>& more, const Prover& prover) {
  ShardState out = state;
  for (size_t k = 0; k < out.dims.size(); k++) {
    std::vector<Digit> owned;
    for (const Digit& d : out.dims[k].digits()) {
      if (d.owner.isDevice()) {
        owned.push_back(d);
      }
    }
    const size_t before = owned.size();
    for (const Digit& d : more) {
      if (d.dim == static_cast<int>(k)) {
        owned.push_back(d);
      }
    }
    if (owned.size() > before) {
      const IntExpr extent = state.dims[k].extent(prover);
      out.dims[k] = fillLocal(static_cast<int>(k), extent, owned, prover);
      if (out.dims[k].isOpaque() || (out.dims[k].isRagged() && !mayBeRagged(more, static_cast<int>(k), extent))) {
        return std::nullopt;
      }
    }
  }
  return out;
}

bool canPropagate(const ShardState& from, const ShardState& to, int axis) {
  return !to.owns(axis) && std::find(to.partial.begin(), to.partial.end(), axis) == to.partial.end() && from.owns(axis);
}

bool canPropagateAny(const ShardState& from, const ShardState& to) {
  for (int axis = 0; axis < from.mesh.numAxes(); axis++) {
    if (canPropagate(from, to, axis)) {
      return true;
    }
  }
  return false;
}

int positionOf(const std::vector<IterDomain*>& ids, const IterDomain* id) {
  const auto at = std::find(ids.begin(), ids.end(), id);
  return at == ids.end() ? -1 : static_cast<int>(at - ids.begin());
}

// Positions in the state of the logical dims of a tensor, -1 for reductions and the partial dim.
std::vector<int> statePositions(const TensorView* tv) {
  const std::vector<IterDomain*> dims = stateDims(tv);
  std::vector<int> positions;
  for (const IterDomain* id : tv->getLogicalDomain()) {
    positions.push_back(positionOf(dims, id));
  }
  return positions;
}

// operandDims() of the dims of the operand's state, which has no entry for the partial dim.
std::vector<OperandDim> operandDimsOfState(const Expr* expr, int operand) {
  std::vector<OperandDim> dims = operandDims(expr, operand);
  if (const int partial = expr->input(operand)->asTensor()->partialDim(); partial >= 0) {
    dims.erase(dims.begin() + partial);
  }
  return dims;
}

// Adds to `state` the axes of `from` that it lacks, one after the other. `arriving` gives the digits that an axis is to own in `state`, or
// nullopt. True if `state` changed.
bool addEachAxis(ShardState& state, const ShardState& from, const Prover& prover, const auto& arriving) {
  bool grew = false;
  for (int axis = 0; axis < from.mesh.numAxes(); axis++) {
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

}  // namespace

bool propagateForward(const Expr* expr, int operand, const ShardState& from, const TensorView* result,
                      ShardState& state, const Prover& facts) {
  if (!(from.mesh == state.mesh) || from.hasOpaqueDim() || state.hasOpaqueDim() || !canPropagateAny(from, state)) {
    return false;
  }
  const Prover prover = withReshape(*expr, facts);
  const std::vector<OperandDim> dims = operandDimsOfState(expr, operand);
  const std::vector<IterDomain*> held = stateDims(expr->input(operand)->asTensor());
  const std::vector<int> positions = statePositions(result);
  const std::vector<DigitList> logical = logicalOverRoot(result, prover);
  return addEachAxis(state, from, prover, [&](int axis) -> std::optional<std::vector<Digit>> {
    std::vector<Digit> arrived;
    for (const Digit& d : digitsOf(from, axis, prover)) {
      const OperandDim& dim = dims[d.dim];
      if (dim.root == kUnmapped || !survivesWindow(d, dim, prover) ||
          (!isWindow(*expr) && stretches(held[d.dim], dim, result->getRootDomain()[dim.root]))) {
        return std::nullopt;
      }
      Digit at = d;
      const int same =
          isWindow(*expr) ? dim.root : positionOf(result->getLogicalDomain(), result->getRootDomain()[dim.root]);
      at.dim = same;
      const DigitList pieces = same >= 0 ? DigitList({at})
                               : !d.parts.empty()
                                   ? DigitList::opaque()
                                   : fromBase(logical, Digit{dim.root, d.stride, d.size, d.owner}, prover);
      if (pieces.isOpaque()) {
        return std::nullopt;
      }
      for (Digit piece : pieces.digits()) {
        piece.dim = positions[piece.dim];
        if (piece.dim < 0) {
          return std::nullopt;
        }
        arrived.push_back(std::move(piece));
      }
    }
    return arrived;
  });
}

bool propagateBackward(const Expr* expr, const TensorView* result, const ShardState& from, int operand,
                       ShardState& state, const Prover& facts) {
  if (!(from.mesh == state.mesh) || from.hasOpaqueDim() || state.hasOpaqueDim() || !canPropagateAny(from, state)) {
    return false;
  }
  const Prover prover = withReshape(*expr, facts);
  const std::vector<OperandDim> dims = operandDimsOfState(expr, operand);
  const std::vector<IterDomain*> held = stateDims(expr->input(operand)->asTensor());
  const std::vector<int> positions = statePositions(result);
  const std::vector<DigitList> logical = logicalOverRoot(result, prover);
  return addEachAxis(state, from, prover, [&](int axis) -> std::optional<std::vector<Digit>> {
    std::vector<Digit> arrived;
    for (Digit d : digitsOf(from, axis, prover)) {
      d.dim = static_cast<int>(std::ranges::find(positions, d.dim) - positions.begin());
      const int same = isWindow(*expr) ? d.dim : positionOf(result->getRootDomain(), result->getLogicalDomain()[d.dim]);
      Digit at = d;
      at.dim = same;
      const DigitList pieces = same >= 0          ? DigitList({at})
                               : !d.parts.empty() ? DigitList::opaque()
                                                  : toBase(logical, d, prover);
      if (pieces.isOpaque()) {
        return std::nullopt;
      }
      for (const Digit& piece : pieces.digits()) {
        // what falls on no dim of the operand, or on one that is stretched, is a part of the axis that the operand does without
        bool reads = from.mesh.axisSize(axis).isConst();
        for (size_t k = 0; k < dims.size(); k++) {
          if (dims[k].root != piece.dim ||
              (!isWindow(*expr) && stretches(held[k], dims[k], result->getRootDomain()[piece.dim]))) {
            continue;
          }
          reads = survivesWindow(piece, dims[k], prover);
          if (reads) {
            Digit at = piece;
            at.dim = static_cast<int>(k);
            arrived.push_back(std::move(at));
          }
          break;
        }
        if (!reads) {
          return std::nullopt;
        }
      }
    }
    return arrived.empty() ? std::nullopt : std::optional(std::move(arrived));
  });
}

std::string opaqueInReshape(const Expr* expr, const ShardState& from, const TensorView* result, const Prover& prover) {
  if (expr->kind() != ExprKind::Reshape || from.hasOpaqueDim()) {
    return {};
  }
  const std::vector<OperandDim> dims = operandDimsOfState(expr, 0);
  const std::vector<DigitList> logical = logicalOverRoot(result, prover);
  for (const DigitList& list : from.dims) {
    for (const Digit& d : list.digits()) {
      const int root = d.owner.isDevice() ? dims[d.dim].root : kUnmapped;
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
  return addEachAxis(state, more, prover, [&](int axis) { return std::optional(digitsOf(more, axis, prover)); });
}

}  // namespace meshfuse
