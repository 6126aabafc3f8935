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
TensorView* PlacedOps::sum(TensorView* tv, const std::vector<bool>& reduced) {
  std::vector<Dim> dims = dimsOf(tv);
  for (int64_t k = 0; k < std::ssize(dims); k++) {
    dims[k].type = reduced[k] ? IterType::Reduction : dims[k].type;
  }
  return placed(fusion_.addOp(ExprKind::Reduce, {tv}, tv->dtype(), dims, {.reduce = ReduceOp::Sum}));
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

TensorView* PlacedOps::iota(int64_t length, int64_t start, int64_t step) {
  TensorView* out = fusion_.tensor(DataType::Int, {{length, IterType::Iteration}});
  fusion_.addExpr(ExprKind::Iota, {fusion_.intScalar(start), fusion_.intScalar(step)}, {out}, {.starts = {IntExpr(0)}});
  return placed(out);
}

TensorView* PlacedOps::padEnd(TensorView* tv, int64_t dim, int64_t more, const ShardState& state) {
  const std::vector<IntExpr> before(tv->shape().size(), 0);
  std::vector<IntExpr> after = before;
  after[dim] = more;
  TensorView* out = fusion_.tensorFromRoot(
      tv->dtype(), dimsOf(tv),
      [&](Fusion& f, const std::vector<IterDomain*>& root) { return connectPad(f, root, before, after); });
  made_.push_back(fusion_.addExpr(ExprKind::Pad, {tv, fusion_.scalar(0.0)}, {out}, {.starts = before, .stops = after}));
  setShardState(out, state);
  return out;
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
  const Expr* e = made_.emplace_back(out->definition());
  ShardState state = ShardState::replicated(mesh_, out->shape());
  for (const int64_t operand : e->tensorPositions()) {
    propagateForward(e, operand, shardState(e->input(operand)->asTensor()), out, state);
  }
  setShardState(out, state);
  return out;
}

}  // namespace meshfuse
