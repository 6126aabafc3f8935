#include "preseg_passes/merge_top_k.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "analysis/pass_context.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "preseg_passes/placed_ops.h"
#include "preseg_passes/plain_tensor.h"
#include "preseg_passes/reshard_cost.h"

namespace meshfuse {

namespace {

// The operand of the cast that gives `tv`, if its elements are smaller and the cast back is exact; else `tv`.
TensorView* beforeCast(TensorView* tv) {
  const Expr* e = tv->definition();
  if (e == nullptr || e->kind() != ExprKind::Cast) {
    return tv;
  }
  TensorView* source = e->input(0)->asTensor();
  const bool isWider = dataTypeSize(source->dtype()) < dataTypeSize(tv->dtype()) &&
                       isFloatingPoint(source->dtype()) == isFloatingPoint(tv->dtype()) &&
                       (!isUnsigned(tv->dtype()) || lowestInteger(source->dtype()) == 0);  // else it changes the order
  return isWider ? source : tv;
}

// What no element of the type comes after.
ScalarConst lastInOrder(DataType type, bool descending) {
  if (isFloatingPoint(type)) {
    using Limits = std::numeric_limits<double>;
    return descending ? -Limits::infinity() : Limits::quiet_NaN();
  }
  return type == DataType::Bool ? ScalarConst(!descending)
                                : ScalarConst(descending ? lowestInteger(type) : highestInteger(type));
}

class MergeTopK {
 public:
  MergeTopK(Fusion& fusion, PassContext& context, Expr* order, const DimBlocks& blocks)
      : fusion_(fusion),
        plans_(context.memo<PlanMemo>()),
        order_(order),
        x_(order->input(0)->asTensor()),
        out_(order->tensorOutput()),
        dim_(order->attributes().dim),
        descending_(order->attributes().flags[0]),
        blocks_(blocks),
        count_(out_->shape()[dim_].constValue()),
        candidates_(min(std::max<int64_t>(count_, 2), blocks.length)),
        ops_(fusion, x_->getDeviceMesh()) {}

  // The remark about the op; `changed` is set if it merges blocks now.
  std::string run(bool& changed) {
    if (!hasKnownSizes(x_, plans_) || !hasKnownSizes(out_, plans_)) {
      return fmt::format("T{} gathers dim {} of {}: sizes are unknown", out_->id(), dim_, x_->toString());
    }
    TensorView* x = ops_.inBlocks(x_, dim_, blocks_, fill());
    TensorView* first = ops_.orderLike(*order_, x, dim_ + 1, candidates_);
    TensorView* values = cast(ops_.takeAlongAxis(x, first, dim_ + 1), narrow());
    if (!ops_.areLocal()) {
      ops_.remove();
      return fmt::format("T{} gathers dim {} of {}: to merge the first of {} blocks, other dims would move as well",
                         out_->id(), dim_, x_->toString(), blocks_.parts);
    }
    ShardState whole = shardState(values);
    whole.dims[dim_] = DigitList::whole(dim_, blocks_.parts);
    const int64_t bytes =
        costOf(plans_, shardState(values), whole, values).bytes + (needsPositions() ? bytesOfPositions(values) : 0);
    const int64_t all = bytesOfGather();
    if (bytes >= all) {
      ops_.remove();
      return fmt::format("T{} gathers dim {} of {}: to merge the first of {} blocks would take {} bytes, not {}",
                         out_->id(), dim_, x_->toString(), blocks_.parts, bytes, all);
    }
    values = asOneDim(cast(ops_.moved(values, whole), x_->dtype()));
    TensorView* chosen = ops_.orderLike(*order_, values, dim_, count_);
    std::vector<bool> lines(first->shape().size(), true);
    lines[dim_] = false;
    TensorView* starts = ops_.iota(blocks_.parts, 0, blocks_.length, blocks_.even(0, 1));
    TensorView* positions = ops_.point(PointOp::Add, {first, ops_.broadcast(starts, lines)});
    TensorView* now = ops_.takeAlongAxis(asOneDim(positions), chosen, dim_);
    const std::vector<Expr*> readers = fusion_.uses(out_);
    for (const Expr* reader : readers) {
      if (readsValues(reader)) {
        TensorView* was = reader->tensorOutput();
        replace(was, cast(ops_.takeAlongAxis(values, chosen, dim_), was->dtype()));
      }
    }
    const int64_t id = out_->id();
    replace(out_, now);
    changed = true;
    return fmt::format("T{} merges the first {} of {} blocks of {} dim {}: a rank receives {} bytes, not {}", id,
                       candidates_.toString(), blocks_.parts, x_->toString(), dim_, bytes, all);
  }

 private:
  // Bytes that a rank receives today: the operand whole along the dim, in other dims where the result is.
  int64_t bytesOfGather() {
    const ShardState held = shardState(x_);
    ShardState needed = shardState(out_);
    needed.dims[dim_] = DigitList::whole(dim_, blocks_.extent);
    return costOf(plans_, held, needed, x_).bytes / dataTypeSize(x_->dtype()) * dataTypeSize(narrow());
  }
  // What comes last of the elements of the narrow type, because only these survive the way there and back.
  ScalarConst fill() const {
    const ScalarConst last = lastInOrder(narrow(), descending_);
    const bool isBoolAsInteger = narrow() == DataType::Bool && x_->dtype() != DataType::Bool;
    return isBoolAsInteger ? ScalarConst(int64_t{descending_ ? 0 : 1}) : last;
  }
  // The type in which elements move.
  DataType narrow() const { return beforeCast(x_)->dtype(); }
  TensorView* cast(TensorView* tv, DataType type) { return tv->dtype() == type ? tv : ops_.cast(tv, type); }

  // Of the sum that collects the positions of the result: an all-reduce of an Int for each of them.
  int64_t bytesOfPositions(const TensorView* firstOfBlocks) const {
    const int64_t line =
        localBytes(plans_, shardState(firstOfBlocks), DataType::Int) / plans_.atSizes(candidates_).constValue();
    return line * count_ * 2 * (blocks_.parts - 1) / blocks_.parts;
  }
  bool needsPositions() const {
    const std::vector<Expr*> readers = fusion_.uses(out_);
    return out_->isFusionOutput() || !std::ranges::all_of(readers, [this](const Expr* e) { return readsValues(e); });
  }

  // [.., parts, candidates, ..] as [.., parts * candidates, ..].
  TensorView* asOneDim(TensorView* tv) {
    std::vector<IntExpr> shape = tv->shape();
    shape.erase(shape.begin() + static_cast<ptrdiff_t>(dim_));
    shape[dim_] = blocks_.parts * candidates_;
    return ops_.reshape(tv, shape);
  }

  // Where the user placed positions that no other op reads, their readers keep them.
  bool readsValues(const Expr* reader) const {
    if ((out_->isUserSharded() && !out_->isFusionOutput()) || reader->kind() != ExprKind::TakeAlongAxis ||
        reader->attributes().dim != dim_ || reader->input(1) != out_) {
      return false;
    }
    const TensorView* table = reader->input(0)->asTensor();
    return (table == x_ || table == beforeCast(x_) || isSameCast(table)) && isPlain(reader->tensorOutput()) &&
           reader->tensorOutput()->getDeviceMesh() == x_->getDeviceMesh();
  }
  // privatize_casts repeats the cast that gives the operand for each reader.
  bool isSameCast(const TensorView* table) const {
    const Expr* a = table->definition();
    const Expr* b = x_->definition();
    return a != nullptr && b != nullptr && a->kind() == ExprKind::Cast && b->kind() == ExprKind::Cast &&
           a->input(0) == b->input(0) && table->dtype() == x_->dtype() && table->hasDeviceMesh() &&
           provenEqual(shardState(table), shardState(x_));
  }
  static bool isPlain(const TensorView* tv) { return tv->hasDeviceMesh() && !tv->isPartial() && !tv->hasRoot(); }

  // In the sharding of `was`; what reads `was` reads `now`.
  void replace(TensorView* was, TensorView* now) {
    const ShardState state = shardState(was);
    if (!provenEqual(shardState(now), state)) {
      now = ops_.moved(now, state);
    }
    fusion_.removeExpr(was->definition());
    takePlace(was, now);
  }

  Fusion& fusion_;
  PlanMemo& plans_;
  Expr* const order_;
  TensorView* const x_;
  TensorView* const out_;  // the positions
  const int64_t dim_;
  const bool descending_;
  const DimBlocks blocks_;
  const int64_t count_;
  const IntExpr candidates_;  // of each block; 2 in place of 1, which would be a broadcast dim
  PlacedOps ops_;
};

// The blocks of the dim from which an argsort takes the first elements; nothing if it is no such op.
std::optional<DimBlocks> blocksOfTopK(const Expr* e) {
  if (ruleOf(*e).elements != Elements::Positions) {
    return std::nullopt;
  }
  const TensorView* x = e->input(0)->asTensor();
  const TensorView* out = e->tensorOutput();
  const int64_t dim = e->attributes().dim;
  if (!x->hasDeviceMesh() || x->isPartial() || out->isPartial() || !(x->getDeviceMesh() == out->getDeviceMesh()) ||
      shardState(out).hasOpaqueDim()) {
    return std::nullopt;
  }
  const IntExpr count = out->shape()[dim];
  const std::optional<DimBlocks> blocks = blocksOf(shardState(x), dim);
  const bool isFew = blocks && count.isConst() && !count.isConst(0) && !provenLessEqual(blocks->extent, count);
  return isFew && !blocks->length.isConst(1) ? blocks : std::nullopt;
}

}  // namespace

bool mergeTopK(Fusion& fusion, PassContext& context) {
  bool changed = false;
  for (const int64_t id : idsOf(fusion, [](const Expr* e) { return blocksOfTopK(e).has_value(); })) {
    Expr* order = fusion.expr(id);
    context.remark(MergeTopK(fusion, context, order, *blocksOfTopK(order)).run(changed));
  }
  return changed;
}

}  // namespace meshfuse
