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

// Positions in the state of the logical dims of a tensor, -1 for reductions and the partial dim.
std::vector<int> statePositions(const TensorView* tv) {
  const int partial = tv->partialDim();
  std::vector<int> positions;
  int stored = 0;
  int next = 0;
  for (const IterDomain* id : tv->getLogicalDomain()) {
    const bool isState = !id->isReduction() && stored != partial;
    stored += id->isReduction() ? 0 : 1;
    positions.push_back(isState ? next++ : -1);
  }
  return positions;
}

// The stored dim of a dim of the state; the state has no entry for the partial dim.
template <class T>
const T& storedDim(const std::vector<T>& stored, int partial, int dim) {
  return stored[dim + (partial >= 0 && dim >= partial ? 1 : 0)];
}

int positionOf(const std::vector<IterDomain*>& ids, const IterDomain* id) {
  const auto at = std::find(ids.begin(), ids.end(), id);
  return at == ids.end() ? -1 : static_cast<int>(at - ids.begin());
}

}  // namespace

bool propagateForward(const Expr* expr, int operand, const ShardState& from, const TensorView* result,
                      ShardState& state, const Prover& facts) {
  if (!(from.mesh == state.mesh) || from.hasOpaqueDim() || state.hasOpaqueDim() || !canPropagateAny(from, state)) {
    return false;
  }
  const Prover prover = withReshape(*expr, facts);
  const std::vector<OperandDim> dims = operandDims(expr, operand);
  const std::vector<IterDomain*> stored = expr->input(operand)->asTensor()->noReductions();
  const int partial = expr->input(operand)->asTensor()->partialDim();
  const std::vector<int> positions = statePositions(result);
  const std::vector<DigitList> logical = logicalOverRoot(result, prover);
  bool grew = false;
  for (int axis = 0; axis < from.mesh.numAxes(); axis++) {
    if (!canPropagate(from, state, axis)) {
      continue;
    }
    std::vector<Digit> arrived;
    bool ok = true;
    for (const Digit& d : digitsOf(from, axis, prover)) {
      const OperandDim& dim = storedDim(dims, partial, d.dim);
      ok = ok && dim.root != kUnmapped && survivesWindow(d, dim, prover) &&
           (isWindow(*expr) || !stretches(storedDim(stored, partial, d.dim), dim, result->getRootDomain()[dim.root]));
      if (!ok) {
        break;
      }
      Digit at = d;
      const int same =
          isWindow(*expr) ? dim.root : positionOf(result->getLogicalDomain(), result->getRootDomain()[dim.root]);
      at.dim = same;
      const DigitList pieces = same >= 0 ? DigitList({at})
                               : !d.parts.empty()
                                   ? DigitList::opaque()
                                   : fromBase(logical, Digit{dim.root, d.stride, d.size, d.owner}, prover);
      ok = !pieces.isOpaque();
      for (Digit piece : pieces.digits()) {
        piece.dim = positions[piece.dim];
        ok = ok && piece.dim >= 0;
        arrived.push_back(std::move(piece));
      }
    }
    std::optional<ShardState> grown = ok ? withDigits(state, arrived, prover) : std::nullopt;
    if (grown) {
      state = std::move(*grown);
      grew = true;
    }
  }
  return grew;
}

bool propagateBackward(const Expr* expr, const TensorView* result, const ShardState& from, int operand,
                       ShardState& state, const Prover& facts) {
  if (!(from.mesh == state.mesh) || from.hasOpaqueDim() || state.hasOpaqueDim() || !canPropagateAny(from, state)) {
    return false;
  }
  const Prover prover = withReshape(*expr, facts);
  const TensorView* producer = expr->input(operand)->asTensor();
  const std::vector<OperandDim> dims = operandDims(expr, operand);
  const std::vector<IterDomain*> stored = producer->noReductions();
  const int partial = producer->partialDim();
  const std::vector<int> positions = statePositions(result);
  const std::vector<DigitList> logical = logicalOverRoot(result, prover);
  bool grew = false;
  for (int axis = 0; axis < from.mesh.numAxes(); axis++) {
    if (!canPropagate(from, state, axis)) {
      continue;
    }
    std::vector<Digit> arrived;
    bool ok = true;
    for (Digit d : digitsOf(from, axis, prover)) {
      d.dim = static_cast<int>(std::find(positions.begin(), positions.end(), d.dim) - positions.begin());
      const int same = isWindow(*expr) ? d.dim : positionOf(result->getRootDomain(), result->getLogicalDomain()[d.dim]);
      Digit at = d;
      at.dim = same;
      const DigitList pieces = same >= 0          ? DigitList({at})
                               : !d.parts.empty() ? DigitList::opaque()
                                                  : toBase(logical, d, prover);
      ok = ok && !pieces.isOpaque();
      for (const Digit& piece : pieces.digits()) {
        // what falls on no dim of the operand, or on one that is stretched, is a part of the axis that the operand does without
        bool reads = from.mesh.axisSize(axis).isConst();
        for (size_t k = 0; k < dims.size(); k++) {
          if (dims[k].root != piece.dim || static_cast<int>(k) == partial ||
              (!isWindow(*expr) && stretches(stored[k], dims[k], result->getRootDomain()[piece.dim]))) {
            continue;
          }
          reads = survivesWindow(piece, dims[k], prover);
          if (reads) {
            Digit at = piece;
            at.dim = static_cast<int>(k) - (partial >= 0 && static_cast<int>(k) > partial ? 1 : 0);
            arrived.push_back(std::move(at));
          }
          break;
        }
        ok = ok && reads;
      }
    }
    std::optional<ShardState> grown = ok && !arrived.empty() ? withDigits(state, arrived, prover) : std::nullopt;
    if (grown) {
      state = std::move(*grown);
      grew = true;
    }
  }
  return grew;
}

std::string opaqueInReshape(const Expr* expr, const ShardState& from, const TensorView* result, const Prover& prover) {
  if (expr->kind() != ExprKind::Reshape || from.hasOpaqueDim()) {
    return {};
  }
  const TensorView* operand = expr->input(0)->asTensor();
  const std::vector<OperandDim> dims = operandDims(expr, 0);
  const std::vector<DigitList> logical = logicalOverRoot(result, prover);
  for (const DigitList& list : from.dims) {
    for (const Digit& d : list.digits()) {
      const int root = d.owner.isDevice() ? storedDim(dims, operand->partialDim(), d.dim).root : kUnmapped;
      if (root != kUnmapped && positionOf(result->getLogicalDomain(), result->getRootDomain()[root]) < 0 &&
          (!d.parts.empty() || fromBase(logical, Digit{root, d.stride, d.size, d.owner}, prover).isOpaque())) {
        return fmt::format(
            "{} of {} is opaque in {}: its digit of dim {}, with stride {} and size {}, is not a digit of any dim "
            "there",
            from.mesh.axisName(d.owner.axis), operand->toString(), result->toString(), d.dim, d.stride.toString(),
            d.size.toString());
      }
    }
  }
  return {};
}

bool addAxes(ShardState& state, const ShardState& more, const Prover& prover) {
  bool grew = false;
  for (int axis = 0; axis < more.mesh.numAxes(); axis++) {
    if (!canPropagate(more, state, axis)) {
      continue;
    }
    if (std::optional<ShardState> grown = withDigits(state, digitsOf(more, axis, prover), prover)) {
      state = std::move(*grown);
      grew = true;
    }
  }
  return grew;
}

}  // namespace meshfuse
