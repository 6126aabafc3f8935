#include "preseg_passes/placed_ops.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "ir/window.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
#include "ops/add_view.h"
#include "preseg_passes/plain_tensor.h"

namespace meshfuse {

TensorView* PlacedOps::point(PointOp op, const std::vector<Val*>& operands, std::optional<DataType> type) {
  std::vector<Dim> dims;
  DataType dtype = DataType::Float;
  for (const Val* v : operands) {
    if (!v->isTensor()) {
      continue;
    }
    const std::vector<Dim> more = dimsOf(v->asTensor());
    dims.resize(more.size(), {1, IterType::Broadcast});
    for (int64_t k = 0; k < std::ssize(more); k++) {
      dims[k] = dims[k].type == IterType::Broadcast ? more[k] : dims[k];
    }
    dtype = v->dtype();
  }
  return placed(fusion_.addOp(ExprKind::Point, operands, type.value_or(dtype), dims, {.point = op}));
}

TensorView* PlacedOps::number(PointOp op, TensorView* tv, ScalarConst with) {
  return point(op, {tv, fusion_.scalar(with)});
}

TensorView* PlacedOps::where(TensorView* condition, TensorView* tv, Val* otherwise) {
  return point(PointOp::Where, {condition, tv, otherwise}, tv->dtype());
}

TensorView* PlacedOps::reduce(TensorView* tv, const std::vector<bool>& reduced, ReduceOp op) {
  std::vector<Dim> dims = dimsOf(tv);
  for (int64_t k = 0; k < std::ssize(dims); k++) {
    dims[k].type = reduced[k] ? IterType::Reduction : dims[k].type;
  }
  return placed(fusion_.addOp(ExprKind::Reduce, {tv}, tv->dtype(), dims, {.reduce = op}));
}

TensorView* PlacedOps::broadcast(TensorView* tv, const std::vector<bool>& isNew) {
  std::vector<Dim> dims;
  const std::vector<Dim> old = dimsOf(tv);
  size_t next = 0;
  for (const bool added : isNew) {
    dims.push_back(added ? Dim{1, IterType::Broadcast} : old[next++]);
  }
  return placed(fusion_.addOp(ExprKind::Broadcast, {tv}, tv->dtype(), dims, {.flags = isNew}));
}

TensorView* PlacedOps::cast(TensorView* tv, DataType type) {
  return placed(fusion_.addOp(ExprKind::Cast, {tv}, type, dimsOf(tv)));
}

TensorView* PlacedOps::iota(const IntExpr& length, const IntExpr& start, const IntExpr& step) {
  return iota(length, start, step, DigitList::whole(0, length));
}

TensorView* PlacedOps::iota(const IntExpr& length, const IntExpr& start, const IntExpr& step, const DigitList& dim) {
  TensorView* out = fusion_.tensor(DataType::Int, {{length, IterType::Iteration}});
  fusion_.addExpr(ExprKind::Iota, {fusion_.intScalar(start), fusion_.intScalar(step)}, {out}, {.starts = {IntExpr(0)}});
  return placed(out, {mesh_, {dim}, {}});
}

TensorView* PlacedOps::scan(TensorView* tv, int64_t dim, ReduceOp op) {
  return placed(fusion_.addOp(ExprKind::Scan, {tv}, tv->dtype(), dimsOf(tv), {.reduce = op, .dim = dim}));
}

TensorView* PlacedOps::element(TensorView* tv, int64_t dim, const IntExpr& position) {
  std::vector<IntExpr> starts(tv->shape().size(), 0);
  std::vector<IntExpr> stops = tv->shape();
  starts[dim] = position;
  stops[dim] = position + 1;
  return placed(addSlice(tv, starts, stops, std::vector<IntExpr>(starts.size(), 1)));
}

TensorView* PlacedOps::orderLike(const Expr& like, TensorView* tv, int64_t dim, const IntExpr& count) {
  std::vector<Dim> dims = dimsOf(tv);
  dims[dim] = {count, count.isConst(1) ? IterType::Broadcast : IterType::Iteration};
  ExprAttributes attributes = like.attributes();
  attributes.dim = dim;
  return placed(fusion_.addOp(like.kind(), {tv}, DataType::Int, dims, attributes));
}

TensorView* PlacedOps::takeAlongAxis(TensorView* table, TensorView* index, int64_t dim) {
  return placed(fusion_.addOp(ExprKind::TakeAlongAxis, {table, index}, table->dtype(), dimsOf(index), {.dim = dim}));
}

TensorView* PlacedOps::padEnd(TensorView* tv, int64_t dim, const IntExpr& more, ScalarConst fill,
                              const ShardState& state) {
  const std::vector<IntExpr> before(tv->shape().size(), 0);
  std::vector<IntExpr> after = before;
  after[dim] = more;
  TensorView* out = fusion_.tensorFromRoot(
      tv->dtype(), dimsOf(tv),
      [&](Fusion& f, const std::vector<IterDomain*>& root) { return connectPad(f, root, before, after); });
  fusion_.addExpr(ExprKind::Pad, {tv, fusion_.scalar(fill)}, {out}, {.starts = before, .stops = after});
  return placed(out, state);
}

TensorView* PlacedOps::inBlocks(TensorView* tv, int64_t dim, const DimBlocks& blocks, ScalarConst fill) {
  std::vector<IntExpr> shape = tv->shape();
  if (!blocks.isEven()) {
    ShardState state = shardState(tv);
    state.dims[dim] = blocks.even(dim, blocks.length);
    tv = padEnd(tv, dim, blocks.parts * blocks.length - blocks.extent, fill, state);
  }
  shape[dim] = blocks.parts;
  shape.insert(shape.begin() + static_cast<ptrdiff_t>(dim) + 1, blocks.length);
  return reshape(tv, shape);
}

TensorView* PlacedOps::outOfBlocks(TensorView* tv, int64_t dim, const DimBlocks& blocks, const ShardState& state) {
  std::vector<IntExpr> shape = tv->shape();
  shape.erase(shape.begin() + static_cast<ptrdiff_t>(dim));
  shape[dim] = blocks.parts * blocks.length;
  TensorView* out = reshape(tv, shape);
  if (blocks.isEven()) {
    return out;
  }
  std::vector<IntExpr> stops = shape;
  stops[dim] = blocks.extent;
  const std::vector<IntExpr> starts(shape.size(), 0);
  const std::vector<IntExpr> steps(shape.size(), 1);
  return placed(addSlice(out, starts, stops, steps), state);
}

TensorView* PlacedOps::reshape(TensorView* tv, const std::vector<IntExpr>& shape) {
  return placed(addReshape(tv, shape));
}

TensorView* PlacedOps::moved(TensorView* tv, const ShardState& to) {
  TensorView* out = redistributed(tv, to);
  made_.push_back(out->definition());
  return out;
}

bool PlacedOps::areLocal() const {
  return std::ranges::none_of(made_,
                              [](const Expr* e) { return e->kind() != ExprKind::Redistribute && isResharding(e); });
}

void PlacedOps::remove() {
  for (Expr* e : std::views::reverse(made_)) {
    fusion_.removeExpr(e);
  }
  made_.clear();
}

TensorView* PlacedOps::placed(TensorView* out) {
  const Expr* e = out->definition();
  ShardState state = ShardState::replicated(mesh_, out->shape());
  for (const int64_t operand : e->tensorPositions()) {
    propagateForward(e, operand, shardState(e->input(operand)->asTensor()), out, state);
  }
  return placed(out, state);
}

TensorView* PlacedOps::placed(TensorView* out, const ShardState& state) {
  made_.push_back(out->definition());
  setShardState(out, state);
  return out;
}

}  // namespace meshfuse
