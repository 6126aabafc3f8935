#include "preseg_passes/partialize_reductions.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <ranges>
#include <string>
#include <tuple>

#include "analysis/pass_context.h"
#include "base/error.h"
#include "base/ranges.h"
#include "base/rounding.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "multidevice/sharding/operand_dims.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/row_broadcast.h"
#include "multidevice/sharding/shard_state_memo.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

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
std::vector<int64_t> rootDims(const Expr* e, int64_t operand, const TensorView* result) {
  std::vector<int64_t> roots = mapped(operandDims(e, operand), &OperandDim::root);
  if (isIndexing(*e) && operand == tableOf(*e)) {
    roots[e->attributes().dim] = std::ssize(result->getRootDomain());
  }
  return roots;
}

// By axis: the digits of reduced root dims that it owns, as digits of these dims.
using PartialAxes = std::map<int64_t, std::vector<Digit>>;

// The digits of one root dim.
std::vector<Digit> digitsOf(const PartialAxes& axes, int64_t root) {
  std::vector<Digit> digits;
  for (const auto& [axis, pieces] : axes) {
    std::ranges::copy_if(pieces, std::back_inserter(digits), [&](const Digit& d) { return d.dim == root; });
  }
  return digits;
}

// A bias is added after the sum, where the result needs it.
std::vector<int64_t> summedOperands(const Expr* e) {
  return filtered(e->tensorPositions(), [&](int64_t operand) { return !isBias(*e, operand); });
}

bool isReduced(const std::vector<Dim>& root, int64_t dim) { return dim >= 0 && root[dim].type == IterType::Reduction; }

// The number of parts that axes own.
IntExpr ownedParts(const DigitList& dim) {
  return productOf(dim.digits(), [](const Digit& d) { return d.owner.isDevice() ? d.size : IntExpr(1); });
}

// Whether the parts are the uneven ones of one split by the product of the axes.
bool isBlock(const DigitList& dim) {
  if (!dim.extent().isConst()) {
    return false;
  }
  int64_t below = 1;
  for (const Digit& d : dim.digits()) {
    below = d.owner.isDevice() ? d.stride.constValue() : below;
  }
  const int64_t parts = ownedParts(dim).constValue();
  const int64_t extent = dim.extent().constValue();
  return dim.isRange() && below == std::max<int64_t>(1, divideUp(extent, parts));
}

// Whether axes own all parts of given sizes.
bool areAllParts(const DigitList& dim) {
  return dim.hasParts() && dim.isRange() && ownedParts(dim).isConst(std::ssize(dim.digits().front().parts));
}

// Their digits can be split off the root dims.
bool nest(const PartialAxes& axes, const std::vector<Dim>& root) {
  return std::ranges::all_of(indices(root), [&](int64_t k) {
    const DigitList digits = fillLocal(k, root[k].extent, digitsOf(axes, k));
    return !digits.isOpaque() && (!digits.isRagged() || (digits.hasParts() ? areAllParts(digits) : isBlock(digits)));
  });
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

// Of the terms of a reduction: Float where it is asked for and rounding to the type of the result loses something.
DataType partialType(const Expr* e, DataType result, const PassSettings& settings) {
  const std::optional<ReduceOp> op = contributionsOf(*e);
  const bool isRounded = isHalfPrecision(result) && !isIndexing(*e) && (op == ReduceOp::Sum || op == ReduceOp::Prod);
  return settings.reduceInFloat && isRounded ? DataType::Float : result;
}

// Whether an axis that owns a reduced dim of an operand takes no part. It does not if another operand owns it on another dim, except in a product
// of constant sizes that has no operand where the result needs it, if moving operands to the reduced dim and combining partial sums
// receives fewer bytes than moving them to the dims that the axis cuts in the result. An all-to-all receives one part of a tensor, an
// all-gather and a reduce-scatter as many as the axis has ranks, an all-reduce two.
bool takesNoPart(const Expr* e, const TensorView* result, DataType partial, int64_t axis, bool isElsewhere,
                 const std::vector<Dim>& root, ShardStateMemo& states, const PlanMemo& plans) {
  const auto hasAxis = [&](const DigitList& dim) { return owns(dim, axis); };
  const auto areConst = [&](const ShardState& state) {
    return std::ranges::all_of(state.dims,
                               [&](const DigitList& dim) { return plans.atSizes(dim.localSize()).isConst(); });
  };
  const ShardState wanted = states.state(result);
  if (!isContraction(*e) || !wanted.mesh.axisSize(axis).isConst() || !areConst(wanted)) {
    return isElsewhere;
  }
  const auto cut = std::ranges::find_if(wanted.dims, hasAxis);
  const int64_t cutDim = cut == wanted.dims.end() ? -1 : cut - wanted.dims.begin();
  const int64_t ranks = wanted.mesh.axisSize(axis).constValue();
  int64_t moved = 0;
  int64_t summed = (cutDim < 0 ? 2 : ranks) * localBytes(plans, wanted, partial);
  int64_t owners = 0;
  bool isShared = false;  // an owner has the dim that the axis cuts in the result
  for (const int64_t operand : summedOperands(e)) {
    const TensorView* tv = e->input(operand)->asTensor();
    const ShardState state = states.state(tv);
    const auto owned = std::ranges::find_if(state.dims, hasAxis);
    if (!(state.mesh == wanted.mesh) || tv->isPartial() || owned == state.dims.end()) {
      continue;
    }
    const std::vector<int64_t> roots = rootDims(e, operand, result);
    const int64_t at = roots[owned - state.dims.begin()];
    if (!areConst(state) || (cutDim >= 0 && at == cutDim)) {
      return isElsewhere;
    }
    const bool hasCut = cutDim >= 0 && contains(roots, cutDim);
    isShared = isShared || hasCut;
    owners++;
    moved += (hasCut ? 1 : ranks) * localBytes(plans, state, tv->dtype());
    summed += isReduced(root, at) ? 0 : localBytes(plans, state, tv->dtype());
  }
  return isElsewhere ? moved <= summed : owners == 1 && isShared && moved < summed;
}

// `partial`: the type of the terms.
PartialAxes partialAxes(const Expr* e, const TensorView* result, DataType partial, const std::vector<Dim>& root,
                        ShardStateMemo& states, const PlanMemo& plans) {
  const DeviceMesh& mesh = result->getDeviceMesh();
  PartialAxes axes;
  std::vector<bool> elsewhere(mesh.numAxes(), false);
  for (const int64_t operand : summedOperands(e)) {
    const TensorView* tv = e->input(operand)->asTensor();
    const ShardState state = states.state(tv);
    if (!(state.mesh == mesh) || tv->isPartial()) {
      continue;
    }
    const std::vector<int64_t> roots = rootDims(e, operand, result);
    std::vector<bool> first(mesh.numAxes(), false);
    for (int64_t k = 0; k < std::ssize(state.dims); k++) {
      for (Digit d : state.dims[k].digits()) {
        if (!d.owner.isDevice()) {
          continue;
        }
        const int64_t axis = d.owner.axis;
        if (!isReduced(root, roots[k]) || (isIndexing(*e) && !state.dims[k].isRange())) {
          elsewhere[axis] = true;
        } else if (axes.count(axis) == 0 || first[axis]) {
          first[axis] = true;
          d.dim = roots[k];
          axes[axis].push_back(d);
        }
      }
    }
  }
  for (const int64_t axis : std::views::keys(axes)) {
    elsewhere[axis] = takesNoPart(e, result, partial, axis, elsewhere[axis], root, states, plans);
  }
  // a digit that is a part of an axis is gathered, because contributions are counted by whole axes
  for (const auto& [axis, pieces] : axes) {
    elsewhere[axis] = elsewhere[axis] || !(productOf(pieces, &Digit::size) == mesh.axisSize(axis));
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
    std::map<std::pair<int64_t, int64_t>, IterDomain*> pieces;  // (axis, -order): the outer part of an axis first
    for (int64_t k = 0; k < std::ssize(ids); k++) {
      const std::vector<Digit> owned = digitsOf(axes, k);
      if (owned.empty()) {
        rest.push_back(ids[k]);
        continue;
      }
      const DigitList digits = fillLocal(k, root[k].extent, owned);
      invariant(!digits.isOpaque(), "[partialize-reductions] digits of root dim {} overlap", k);
      IterDomain* left = ids[k];
      if (digits.isRagged()) {  // padded as one
        auto [outer, inner] = digits.hasParts()
                                  ? f.idPartition(left, digits.digits().front().parts, IterType::Iteration)
                                  : f.idSplit(left, ownedParts(digits), false, IterType::Iteration);
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
          const std::vector<Digit>& list = axes.at(d.owner.axis);
          const auto at = std::ranges::find_if(
              list, [&](const Digit& piece) { return piece.dim == k && piece.owner.below == d.owner.below; });
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
  ShardState state = ShardState::replicated(wanted.mesh, mapped(stateDims(partial), &IterDomain::extent));
  append(state.partial, std::views::keys(axes));
  for (const int64_t operand : e->tensorPositions()) {
    propagateForward(e, operand, shardState(e->input(operand)->asTensor()), partial, state);
  }
  addAxes(state, wanted);
  return state;
}

TensorView* cast(TensorView* tv, DataType to, const ShardState& at) {
  return tv->dtype() == to ? tv : plainOp(ExprKind::Cast, {tv}, tv, to, at);
}

// sum + bias of type `dtype`, as the op would have: in Float where that is of 16 bits. The bias has the last dim of the sum, or none.
TensorView* addBias(TensorView* sum, TensorView* bias, const ShardState& state, DataType dtype) {
  Fusion& fusion = sum->fusion();
  const DataType wide = accumulateType(dtype);
  const std::vector<IntExpr> own = bias->shape();
  const int64_t added = std::ssize(state.dims) - std::ssize(own);
  ShardState narrow = ShardState::replicated(state.mesh, {});
  ShardState wider = ShardState::replicated(state.mesh, std::vector<IntExpr>(added, 1));
  std::vector<Dim> dims(added, Dim{1, IterType::Broadcast});
  std::vector<bool> isNew(added, true);
  for (const int64_t i : indices(own)) {
    const std::vector<Digit> owned =
        filtered(state.dims[added + i].digits(), [](const Digit& d) { return d.owner.isDevice(); });
    narrow.dims.push_back(fillLocal(i, own[i], owned));
    wider.dims.push_back(fillLocal(added + i, own[i], owned));
    dims.push_back({own[i], bias->noReductions()[i]->iterType()});
    isNew.push_back(false);
  }
  TensorView* b = cast(bias, wide, narrow);
  TensorView* stretched = placedOp(ExprKind::Broadcast, {b}, wide, dims, wider, {.flags = isNew});
  TensorView* total = plainTensor(sum, wide, state);
  fusion.addExpr(ExprKind::Point, {cast(sum, wide, state), stretched}, {total}, {.point = PointOp::Add});
  return cast(total, dtype, state);
}

// Two reductions with equal text can be merged.
std::string reductionText(const Expr* e, const TensorView* result) {
  const auto markOf = [](const Dim& dim) { return dim.type == IterType::Reduction ? " r" : " i"; };
  return fmt::format("{} of {} to {} {} on{}", name(e->attributes().reduce), e->input(0)->id(), name(result->dtype()),
                     shardState(result).toString(), joined(dimsOf(result->getRootDomain()), "", markOf));
}

using Combined = std::map<std::string, TensorView*>;  // by reductionText: the combined result

bool partialize(Expr* e, PassContext& context, Combined& combinedBefore) {
  if (!e->output()->isTensor() || !contributionsOf(*e)) {
    return false;
  }
  TensorView* result = e->tensorOutput();
  if (!result->hasDeviceMesh() || result->isPartial()) {
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
  const DataType dtype = partialType(e, result->dtype(), context.settings());
  const PartialAxes axes =
      partialAxes(e, result, dtype, root, context.memo<ShardStateMemo>(), context.memo<PlanMemo>());
  if (axes.empty()) {
    return false;
  }
  const bool shared = e->kind() == ExprKind::Reduce && !result->hasAllocation() && !result->isFusionOutput();
  TensorView* unshared = nullptr;
  TensorView*& done = shared ? combinedBefore[reductionText(e, result)] : unshared;
  if (done != nullptr) {
    done->setUserSharded(done->isUserSharded() || result->isUserSharded());
    fusion.replaceUses(result, done);
    fusion.removeExpr(e);
    return true;
  }
  const ShardState wanted = shardState(result);
  std::vector<Val*> operands = e->inputs();
  TensorView* bias = nullptr;
  if (const int64_t last = std::ssize(operands) - 1; isBias(*e, last)) {
    bias = operands[last]->asTensor();
    operands.pop_back();
  }
  if (e->kind() == ExprKind::Reduce) {  // contractions take operands of 16 bits for a Float result
    operands[0] = cast(operands[0]->asTensor(), dtype, shardState(operands[0]->asTensor()));
  }
  TensorView* partial = partialTensor(fusion, dtype, root, axes, *contributionsOf(*e));
  Expr* local = fusion.addExpr(e->kind(), operands, {partial}, e->attributes());
  setShardState(partial, partialState(local, axes, partial, wanted));
  TensorView* combined = combine(partial, wanted);
  done = bias != nullptr ? addBias(combined, bias, wanted, result->dtype()) : cast(combined, result->dtype(), wanted);
  fusion.removeExpr(e);
  takePlace(result, done);
  return true;
}

}  // namespace

bool partializeReductions(Fusion& fusion, PassContext& context) {
  bool changed = false;
  Combined combinedBefore;
  for (Expr* e : fusion.exprs()) {
    changed |= partialize(e, context, combinedBefore);
  }
  return changed;
}

}  // namespace meshfuse
