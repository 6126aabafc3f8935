#include "preseg_passes/placed_ops.h"

#include <algorithm>

#include "ir/reshape.h"
#include "ir/window.h"
#include "multidevice/sharding/propagate.h"
#include "multidevice/sharding/relation.h"
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
    for (size_t k = 0; k < more.size(); k++) {
      dims[k] = dims[k].type == IterType::Broadcast ? more[k] : dims[k];
    }
    dtype = v->dtype();
  }
  return add(ExprKind::Point, operands, fusion_.tensor(type.value_or(dtype), dims), {.point = op});
}

TensorView* PlacedOps::number(PointOp op, TensorView* tv, double with) { return point(op, {tv, fusion_.scalar(with)}); }
TensorView* PlacedOps::integer(PointOp op, TensorView* tv, int64_t with) {
  return point(op, {tv, fusion_.intScalar(with)});
}
TensorView* PlacedOps::sum(TensorView* tv, const std::vector<bool>& reduced) {
  std::vector<Dim> dims = dimsOf(tv);
  for (size_t k = 0; k < dims.size(); k++) {
    dims[k].type = reduced[k] ? IterType::Reduction : dims[k].type;
  }
  return add(ExprKind::Reduce, {tv}, fusion_.tensor(tv->dtype(), dims), {.reduce = ReduceOp::Sum});
}

TensorView* PlacedOps::broadcast(TensorView* tv, const std::vector<bool>& isNew) {
  std::vector<Dim> dims;
  const std::vector<Dim> old = dimsOf(tv);
  size_t next = 0;
  for (const bool added : isNew) {
    dims.push_back(added ? Dim{1, IterType::Broadcast} : old[next++]);
  }
  return add(ExprKind::Broadcast, {tv}, fusion_.tensor(tv->dtype(), dims), {.flags = isNew});
}

TensorView* PlacedOps::cast(TensorView* tv, DataType type) {
  return add(ExprKind::Cast, {tv}, fusion_.tensor(type, dimsOf(tv)), {});
}

TensorView* PlacedOps::iota(int64_t length, int64_t start, int64_t step) {
  return add(ExprKind::Iota, {fusion_.intScalar(start), fusion_.intScalar(step)},
             fusion_.tensor(DataType::Int, {{length, IterType::Iteration}}), {.starts = {IntExpr(0)}});
}

TensorView* PlacedOps::padEnd(TensorView* tv, size_t dim, int64_t more, const ShardState& state) {
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

TensorView* PlacedOps::reshape(TensorView* tv, const std::vector<IntExpr>& extents) {
  return add(ExprKind::Reshape, {tv},
             fusion_.tensorFromRoot(
                 tv->dtype(), dimsOf(tv),
                 [&](Fusion& f, const std::vector<IterDomain*>& root) { return connectReshape(f, root, extents); }),
             {});
}

TensorView* PlacedOps::moved(TensorView* tv, const ShardState& to) {
  TensorView* out = plainTensor(tv, tv->dtype(), to);
  made_.push_back(redistribute(tv, out));
  return out;
}

bool PlacedOps::areLocal() const {
  return std::ranges::none_of(made_,
                              [](const Expr* e) { return e->kind() != ExprKind::Redistribute && isResharding(e); });
}

void PlacedOps::remove() {
  for (auto e = made_.rbegin(); e != made_.rend(); ++e) {
    fusion_.removeExpr(*e);
  }
  made_.clear();
}

TensorView* PlacedOps::add(ExprKind kind, const std::vector<Val*>& operands, TensorView* out,
                           const ExprAttributes& attributes) {
  Expr* e = fusion_.addExpr(kind, operands, {out}, attributes);
  made_.push_back(e);
  ShardState state = ShardState::replicated(mesh_, out->shape());
  for (const int operand : e->tensorPositions()) {
    propagateForward(e, operand, shardState(e->input(operand)->asTensor()), out, state);
  }
  setShardState(out, state);
  return out;
}

}  // namespace meshfuse
