#include "preseg_passes/plain_tensor.h"

namespace meshfuse {

TensorView* placedTensor(Fusion& fusion, DataType dtype, const std::vector<Dim>& dims, const ShardState& state) {
  TensorView* tv = fusion.tensor(dtype, dims);
  if (!state.mesh.empty()) {
    setShardState(tv, state);
  }
  return tv;
}

TensorView* plainTensor(const TensorView* tv, DataType dtype, const ShardState& state) {
  TensorView* plain = placedTensor(tv->fusion(), dtype, dimsOf(tv), state);
  if (tv->hasAllocation()) {
    plain->copyAllocation(*tv);
  }
  return plain;
}

Expr* redistribute(TensorView* from, TensorView* to) {
  return from->fusion().addExpr(ExprKind::Redistribute, {from}, {to});
}

TensorView* combine(TensorView* partial, const ShardState& state) {
  std::vector<Dim> dims = dimsOf(partial);
  const int dim = partial->partialDim();
  dims.at(dim).type = IterType::Reduction;
  TensorView* combined = placedTensor(partial->fusion(), partial->dtype(), dims, state);
  partial->fusion().addExpr(ExprKind::Redistribute, {partial}, {combined},
                            {.reduce = partial->partialDomain()->combine(), .dim = dim});
  return combined;
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
  const int partial = expr->tensorInputs()[0]->partialDim();
  const std::vector<IterDomain*>& dims = expr->tensorOutput()->getLogicalDomain();
  for (size_t k = 0; k < dims.size(); k++) {
    if (dims[k]->isReduction() != (static_cast<int>(k) == partial)) {
      return false;
    }
  }
  return partial >= 0;
}

}  // namespace meshfuse
