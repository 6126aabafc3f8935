#include "preseg_passes/plain_tensor.h"

#include <algorithm>

namespace meshfuse {

TensorView* placedTensor(Fusion& fusion, DataType dtype, const std::vector<Dim>& dims, const ShardState& state) {
  TensorView* tv = fusion.tensor(dtype, dims);
  if (!state.mesh.empty()) {
    setShardState(tv, state);
  }
  return tv;
}

TensorView* plainTensor(const TensorView* tv, DataType dtype, const ShardState& state) {
  const std::vector<IterDomain*> stored = tv->noReductions();
  std::vector<Dim> dims;
  for (const IterDomain* id : stored) {
    dims.push_back({id->extent(), id->iterType()});
  }
  TensorView* plain = placedTensor(tv->fusion(), dtype, dims, state);
  if (tv->hasAllocation()) {
    std::vector<IterDomain*> order;
    for (const IterDomain* id : tv->getAllocationDomain()) {
      order.push_back(plain->getLogicalDomain()[std::find(stored.begin(), stored.end(), id) - stored.begin()]);
    }
    plain->setAllocationDomain(order, tv->contiguity());
  }
  return plain;
}

Expr* redistribute(TensorView* from, TensorView* to) {
  return from->fusion().addExpr(ExprKind::Redistribute, {from}, {to}, ExprAttributes{});
}

TensorView* combine(TensorView* partial, const ShardState& state, ReduceOp reduce) {
  std::vector<Dim> dims;
  for (const IterDomain* id : partial->noReductions()) {
    dims.push_back({id->extent(), id->iterType()});
  }
  ExprAttributes attributes;
  attributes.reduce = reduce;
  attributes.dim = partialDim(partial);
  dims.at(attributes.dim).type = IterType::Reduction;
  TensorView* combined = placedTensor(partial->fusion(), partial->dtype(), dims, state);
  partial->fusion().addExpr(ExprKind::Redistribute, {partial}, {combined}, attributes);
  return combined;
}

}  // namespace meshfuse
