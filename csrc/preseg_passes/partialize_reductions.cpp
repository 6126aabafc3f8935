#include "preseg_passes/partialize_reductions.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/row_broadcast.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/plain_tensor.h"

namespace meshfuse {

namespace {

// The root domain of the partial result: that of the result, and the indexed dim at the end.
std::vector<Dim> partialRoot(const Expr* e, const TensorView* result) {
  std::vector<Dim> root = dimsOf(result->getRootDomain());
  if (isIndexing(*e)) {
    root.push_back({e->input(tableOf(*e))->asTensor()->shape()[e->attributes().dim], IterType::Reduction});
  }
  return root;
}

// For every operand dim, the corresponding dim of partialRoot.
std::vector<int> rootDims(const Expr* e, int operand, const TensorView* result) {
  std::vector<int> roots;
  for (const OperandDim& dim : operandDims(e, operand)) {
    roots.push_back(dim.root);
  }
  if (isIndexing(*e) && operand == tableOf(*e)) {
    roots[e->attributes().dim] = static_cast<int>(result->getRootDomain().size());
  }
  return roots;
}

struct OwnedPiece {
  int root;
  Digit digit;
};

// By axis: the digits of reduced root dims that it owns.
using PartialAxes = std::map<int, std::vector<OwnedPiece>>;

bool isReduced(const std::vector<Dim>& root, int dim) { return dim >= 0 && root[dim].type == IterType::Reduction; }

// Whether the parts are the uneven ones of one split by the product of the axes.
bool isBlock(const DigitList& dim) {
  int64_t parts = 1;
  int64_t below = 1;
  for (const Digit& d : dim.digits()) {
    if (d.owner.isDevice()) {
      parts *= d.size.constValue();
      below = d.stride.constValue();
    }
  }
  const int64_t extent = dim.extent().constValue();
  return dim.isRange() && below == std::max<int64_t>(1, (extent + parts - 1) / parts);
}

// Whether axes own all parts of given sizes.
bool areAllParts(const DigitList& dim) {
  int64_t owned = 1;
  for (const Digit& d : dim.digits()) {
    owned *= d.owner.isDevice() ? d.size.constValue() : 1;
  }
  return dim.hasParts() && dim.isRange() && owned == std::ssize(dim.digits().front().parts);
}

// Their digits can be split off the root dims.
bool nest(const PartialAxes& axes, const std::vector<Dim>& root) {
  std::vector<std::vector<Digit>> owned(root.size());
  for (const auto& [axis, pieces] : axes) {
    for (const OwnedPiece& piece : pieces) {
      owned[piece.root].push_back(piece.digit);
    }
  }
  for (size_t k = 0; k < root.size(); k++) {
    if (owned[k].empty()) {
      continue;
    }
    const DigitList digits = fillLocal(static_cast<int>(k), root[k].extent, owned[k]);
    const bool uneven = !digits.isOpaque() && digits.isRagged();
    if (digits.isOpaque() || (uneven && !(digits.hasParts() ? areAllParts(digits) : isBlock(digits)))) {
      return false;
    }
  }
  return true;
}

// Operands may cut one reduced dim differently: axes are taken in order as long as their digits nest. Uneven parts over several axes
// may be blocks only together.
PartialAxes nestedAxes(const PartialAxes& axes, const std::vector<Dim>& root) {
  if (nest(axes, root)) {
    return axes;
  }
  PartialAxes taken;
  for (const auto& [axis, pieces] : axes) {
    PartialAxes with = taken;
    with[axis] = pieces;
    if (nest(with, root)) {
      taken = std::move(with);
    }
  }
  return taken;
}

PartialAxes partialAxes(const Expr* e, const TensorView* result, const std::vector<Dim>& root, ShardStateMemo& states) {
  const DeviceMesh& mesh = result->getDeviceMesh();
  PartialAxes axes;
  std::vector<bool> elsewhere(mesh.numAxes(), false);
  for (const int operand : e->tensorPositions()) {
    const TensorView* tv = e->input(operand)->asTensor();
    const ShardState state = states.state(tv);
    if (!(state.mesh == mesh) || tv->isPartial()) {
      continue;
    }
    const std::vector<int> roots = rootDims(e, operand, result);
    std::vector<bool> first(mesh.numAxes(), false);
    for (size_t k = 0; k < state.dims.size(); k++) {
      for (const Digit& d : state.dims[k].digits()) {
        if (!d.owner.isDevice()) {
          continue;
        }
        const int axis = d.owner.axis;
        if (!isReduced(root, roots[k]) || (isIndexing(*e) && !state.dims[k].isRange())) {
          elsewhere[axis] = true;
        } else if (axes.count(axis) == 0 || first[axis]) {
          first[axis] = true;
          axes[axis].push_back({roots[k], d});
        }
      }
    }
  }
  // a digit that is a part of an axis is gathered, because contributions are counted by whole axes
  for (const auto& [axis, pieces] : axes) {
    IntExpr together = 1;
    for (const OwnedPiece& piece : pieces) {
      together *= piece.digit.size;
    }
    elsewhere[axis] = elsewhere[axis] || !(together == mesh.axisSize(axis));
  }
  if (isIndexing(*e)) {
    // if an outer axis is gathered because it is needed elsewhere, an inner axis does not own a contiguous range of rows
    const ShardState table = states.state(e->input(tableOf(*e))->asTensor());
    bool outermost = true;
    for (const Digit& d : table.dims[e->attributes().dim].digits()) {
      outermost = outermost && d.owner.isDevice() && !elsewhere[d.owner.axis];
      if (d.owner.isDevice() && !outermost) {
        elsewhere[d.owner.axis] = true;
      }
    }
  }
  std::erase_if(axes, [&](const auto& entry) { return elsewhere[entry.first]; });
  return nestedAxes(axes, root);
}

// [root] -> [partial, the others]: every owned piece is split off as a stored dim, all of them merged into one.
TensorView* partialTensor(Fusion& fusion, DataType dtype, const std::vector<Dim>& root, const PartialAxes& axes,
                          ReduceOp combine) {
  return fusion.tensorFromRoot(dtype, root, [&](Fusion& f, const std::vector<IterDomain*>& ids) {
    std::vector<IterDomain*> rest;
    std::map<std::pair<int, int64_t>, IterDomain*> pieces;  // (axis, -order): the outer part of an axis first
    for (size_t k = 0; k < ids.size(); k++) {
      std::vector<Digit> owned;
      for (const auto& [axis, list] : axes) {
        for (const OwnedPiece& piece : list) {
          if (piece.root == static_cast<int>(k)) {
            owned.push_back(piece.digit);
          }
        }
      }
      if (owned.empty()) {
        rest.push_back(ids[k]);
        continue;
      }
      const DigitList digits = fillLocal(static_cast<int>(k), root[k].extent, owned);
      invariant(!digits.isOpaque(), "[partialize-reductions] digits of root dim {} overlap", k);
      IterDomain* left = ids[k];
      if (digits.isRagged()) {  // padded as one
        IntExpr parts = 1;
        for (const Digit& d : digits.digits()) {
          parts *= d.owner.isDevice() ? d.size : IntExpr(1);
        }
        auto [outer, inner] = digits.hasParts()
                                  ? f.idPartition(left, digits.digits().front().parts, IterType::Iteration)
                                  : f.idSplit(left, parts, false, IterType::Iteration);
        left = outer;
        rest.push_back(inner);
      }
      IntExpr uncut = left->extent();
      for (const Digit& d : digits.digits()) {
        const bool device = d.owner.isDevice();
        if (!device && (d.stride.isConst(1) || digits.isRagged())) {
          break;
        }
        IterDomain* outer = left;
        if (digits.isRagged() && d.size == uncut) {
          left = nullptr;  // the last of the run
        } else {
          std::tie(outer, left) = f.idSplit(left, d.size, false, device ? IterType::Iteration : IterType::Reduction);
          uncut = left->extent();
        }
        if (device) {
          const std::vector<OwnedPiece>& list = axes.at(d.owner.axis);
          const auto at = std::find_if(list.begin(), list.end(), [&](const OwnedPiece& p) {
            return p.root == static_cast<int>(k) && p.digit.owner.below == d.owner.below;
          });
          // Larger `below` is the outer part; digits of one axis were listed in dim order, which need not be that.
          const int64_t below = d.owner.below.isConst() ? d.owner.below.constValue() : at - list.begin();
          pieces[{d.owner.axis, -below}] = outer;
        } else {
          rest.push_back(outer);
        }
      }
      if (left != nullptr) {
        rest.push_back(left);
      }
    }
    IterDomain* partial = nullptr;
    for (const auto& [key, id] : pieces) {
      partial = partial == nullptr ? id : f.idMerge(partial, id);
    }
    rest.insert(rest.begin(), f.idPartial(partial, combine));
    return rest;
  });
}

ShardState partialState(Expr* e, const PartialAxes& axes, const TensorView* partial, const ShardState& wanted) {
  std::vector<IntExpr> shape = partial->shape();
  shape.erase(shape.begin());
  ShardState state = ShardState::replicated(wanted.mesh, shape);
  for (const auto& [axis, pieces] : axes) {
    state.partial.push_back(axis);
  }
  for (const int operand : e->tensorPositions()) {
    propagateForward(e, operand, shardState(e->input(operand)->asTensor()), partial, state);
  }
  addAxes(state, wanted);
  return state;
}

TensorView* cast(TensorView* tv, DataType to, const ShardState& at) {
  if (tv->dtype() == to) {
    return tv;
  }
  TensorView* out = plainTensor(tv, to, at);
  tv->fusion().addExpr(ExprKind::Cast, {tv}, {out});
  return out;
}

// sum + bias of type `dtype`, as the op would have: in Float where that is of 16 bits.
TensorView* addBias(TensorView* sum, TensorView* bias, const ShardState& state, DataType dtype) {
  Fusion& fusion = sum->fusion();
  const DataType wide = accumulateType(dtype);
  ShardState biasState = ShardState::replicated(state.mesh, bias->shape());
  std::vector<Digit> owned;
  for (Digit d : state.dims.back().digits()) {
    if (d.owner.isDevice()) {
      d.dim = 0;
      owned.push_back(d);
    }
  }
  biasState.dims[0] = fillLocal(0, bias->shape()[0], owned);
  TensorView* b = cast(bias, wide, biasState);
  std::vector<Dim> dims(state.dims.size() - 1, Dim{1, IterType::Broadcast});
  dims.push_back({bias->shape()[0], bias->noReductions()[0]->iterType()});
  ShardState broadcastState = ShardState::replicated(state.mesh, std::vector<IntExpr>(state.dims.size() - 1, 1));
  for (Digit& d : owned) {
    d.dim = static_cast<int>(state.dims.size()) - 1;
  }
  broadcastState.dims.push_back(fillLocal(static_cast<int>(state.dims.size()) - 1, bias->shape()[0], owned));
  TensorView* stretched = placedTensor(fusion, wide, dims, broadcastState);
  std::vector<bool> isNew(dims.size(), true);
  isNew.back() = false;
  fusion.addExpr(ExprKind::Broadcast, {b}, {stretched}, {.flags = isNew});
  TensorView* total = plainTensor(sum, wide, state);
  fusion.addExpr(ExprKind::Point, {cast(sum, wide, state), stretched}, {total}, {.point = PointOp::Add});
  return cast(total, dtype, state);
}

// Two reductions with equal text can be merged.
std::string reductionText(const Expr* e, const TensorView* result) {
  std::string text = fmt::format("{} of {} to {} {} on", name(e->attributes().reduce), e->input(0)->id(),
                                 name(result->dtype()), shardState(result).toString());
  for (const Dim& dim : dimsOf(result->getRootDomain())) {
    text += dim.type == IterType::Reduction ? " r" : " i";
  }
  return text;
}

using Combined = std::map<std::string, TensorView*>;  // by reductionText: the combined result

// Whether terms are added up where rounding to the type of the result loses something.
bool isRounded(const Expr* e, DataType type) {
  const std::optional<ReduceOp> op = contributionsOf(*e);
  return isHalfPrecision(type) && !isIndexing(*e) && (op == ReduceOp::Sum || op == ReduceOp::Prod);
}

bool partialize(Expr* e, const PassSettings& settings, ShardStateMemo& states, Combined& combinedBefore) {
  if (!e->output()->isTensor()) {
    return false;
  }
  TensorView* result = e->tensorOutput();
  if (!contributionsOf(*e) || !result->hasDeviceMesh() || result->isPartial()) {
    return false;
  }
  Fusion& fusion = e->fusion();
  if (combinesPartials(e)) {
    TensorView* combined = combine(e->input(0)->asTensor(), shardState(result));
    combined->setUserSharded(result->isUserSharded());
    fusion.replaceUses(result, combined);
    fusion.removeExpr(e);
    return true;
  }
  if (isIndexing(*e) && rowBroadcast(e)) {
    return false;  // the rank that holds the row sends it
  }
  const std::vector<Dim> root = partialRoot(e, result);
  const PartialAxes axes = partialAxes(e, result, root, states);
  if (axes.empty()) {
    return false;
  }
  const bool shared = e->kind() == ExprKind::Reduce && !result->hasAllocation() && !result->isFusionOutput();
  TensorView** before = shared ? &combinedBefore[reductionText(e, result)] : nullptr;
  if (before != nullptr && *before != nullptr) {
    (*before)->setUserSharded((*before)->isUserSharded() || result->isUserSharded());
    fusion.replaceUses(result, *before);
    fusion.removeExpr(e);
    return true;
  }
  const ShardState wanted = shardState(result);
  std::vector<Val*> operands = e->inputs();
  TensorView* bias = nullptr;
  if (e->kind() == ExprKind::Linear && operands.size() == 3) {
    bias = operands[2]->asTensor();
    operands.pop_back();
  }
  const DataType dtype = settings.reduceInFloat && isRounded(e, result->dtype()) ? DataType::Float : result->dtype();
  if (e->kind() == ExprKind::Reduce) {  // contractions take operands of 16 bits for a Float result
    operands[0] = cast(operands[0]->asTensor(), dtype, shardState(operands[0]->asTensor()));
  }
  TensorView* partial = partialTensor(fusion, dtype, root, axes, *contributionsOf(*e));
  Expr* local = fusion.addExpr(e->kind(), operands, {partial}, e->attributes());
  setShardState(partial, partialState(local, axes, partial, wanted));
  TensorView* combined = combine(partial, wanted);
  TensorView* done =
      bias != nullptr ? addBias(combined, bias, wanted, result->dtype()) : cast(combined, result->dtype(), wanted);
  done->copyAllocation(*result);
  done->setUserSharded(result->isUserSharded());
  fusion.replaceUses(result, done);
  fusion.removeExpr(e);
  fusion.renumber(done, result->id());
  if (before != nullptr) {
    *before = done;
  }
  return true;
}

}  // namespace

bool partializeReductions(Fusion& fusion, PassContext& context) {
  bool changed = false;
  Combined combinedBefore;
  for (Expr* e : fusion.exprs()) {
    changed |= partialize(e, context.settings(), context.memo<ShardStateMemo>(), combinedBefore);
  }
  return changed;
}

}  // namespace meshfuse
