#include "preseg_passes/plain_tensor.h"

#include "base/ranges.h"

namespace meshfuse {

TensorView* plainTensor(const TensorView* tv, DataType dtype, const ShardState& state) {
  TensorView* plain = tv->fusion().tensor(dtype, dimsOf(tv));
  if (!state.mesh.empty()) {
    setShardState(plain, state);
  }
  if (tv->hasAllocation()) {
    plain->copyAllocation(*tv);
  }
  return plain;
}

TensorView* plainOp(ExprKind kind, const std::vector<Val*>& operands, const TensorView* like, DataType dtype,
                    const ShardState& state, const ExprAttributes& attributes) {
  TensorView* out = plainTensor(like, dtype, state);
  like->fusion().addExpr(kind, operands, {out}, attributes);
  return out;
}

TensorView* placedOp(ExprKind kind, const std::vector<Val*>& operands, DataType dtype, const std::vector<Dim>& dims,
                     const ShardState& state, const ExprAttributes& attributes) {
  TensorView* out = operands[0]->fusion().addOp(kind, operands, dtype, dims, attributes);
  if (!state.mesh.empty()) {
    setShardState(out, state);
  }
  return out;
}

TensorView* redistributed(TensorView* from, const ShardState& state) {
  return plainOp(ExprKind::Redistribute, {from}, from, from->dtype(), state);
}

TensorView* combine(TensorView* partial, const ShardState& state) {
  std::vector<Dim> dims = dimsOf(partial);
  const int64_t dim = partial->partialDim();
  dims.at(dim).type = IterType::Reduction;
  return placedOp(ExprKind::Redistribute, {partial}, partial->dtype(), dims, state,
                  {.reduce = partial->partialDomain()->combine(), .dim = dim});
}

void takePlace(TensorView* was, TensorView* now) {
  Fusion& fusion = was->fusion();
  fusion.replaceUses(was, now);
  now->copyAllocation(*was);
  now->setUserSharded(was->isUserSharded());
  fusion.renumber(now, was->id());
}

bool combinesPartials(const Expr* expr) {
  if (expr->kind() != ExprKind::Reduce) {
    return false;
  }
  const int64_t partial = expr->tensorInputs()[0]->partialDim();
  const std::vector<IterDomain*>& dims = expr->tensorOutput()->getLogicalDomain();
  return partial >= 0 &&
         std::ranges::all_of(indices(dims), [&](int64_t k) { return dims[k]->isReduction() == (k == partial); });
}

}  // namespace meshfuse
