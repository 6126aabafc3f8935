#include "ops/indexing.h"

#include "base/error.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

Fusion& checkIndexing(std::string_view op, TensorView* x, TensorView* index) {
  checkTensor(op, x, "the tensor");
  checkTensor(op, index, "the index");
  Val* both[] = {x, index};
  Fusion& fusion = commonFusion(op, both);
  check(isIntegral(index->dtype()), "[{}] the index is {}, expected Int or Int32 elements; cast with castOp", op,
        describe(index));
  return fusion;
}

void checkSameRank(std::string_view op, const TensorView* x, const TensorView* index) {
  check(rankOf(x) == rankOf(index) && rankOf(x) > 0,
        "[{}] {} and index {} have different numbers of dims, or none; unsqueeze the index", op, describe(x),
        describe(index));
}

TensorView* define(Fusion& fusion, ExprKind kind, TensorView* first, TensorView* second, DataType dtype,
                   const std::vector<Dim>& dims, int dim) {
  TensorView* out = fusion.tensor(dtype, dims);
  ExprAttributes attributes;
  attributes.dim = dim;
  if (kind == ExprKind::Embedding) {
    attributes.starts = {IntExpr(0)};
    attributes.flags = {false};
  }
  fusion.addExpr(kind, {first, second}, {out}, attributes);
  return out;
}

}  // namespace

TensorView* takeAlongAxis(TensorView* x, TensorView* index, int64_t dim) {
  Fusion& fusion = checkIndexing("takeAlongAxis", x, index);
  checkSameRank("takeAlongAxis", x, index);
  int axis = wrapAxis("takeAlongAxis", dim, rankOf(x));
  std::vector<Dim> source = dimsOf(x);
  std::vector<Dim> dims = dimsOf(index);
  for (int k = 0; k < static_cast<int>(dims.size()); k++) {
    if (k == axis) {
      continue;
    }
    bool stretches = dims[k].type != IterType::Iteration || source[k].type != IterType::Iteration;
    check(stretches || !provenDifferent(dims[k].extent, source[k].extent),
          "[takeAlongAxis] extents differ in dim {}: {} and index {}; expected equal extents or a broadcast dim", k,
          describe(x), describe(index));
    dims[k] = stretched(source[k], dims[k]);
  }
  return define(fusion, ExprKind::TakeAlongAxis, x, index, x->dtype(), dims, axis);
}

TensorView* gather(TensorView* x, int64_t dim, TensorView* index) {
  Fusion& fusion = checkIndexing("gather", x, index);
  checkSameRank("gather", x, index);
  int axis = wrapAxis("gather", dim, rankOf(x));
  std::vector<IntExpr> source = x->shape();
  std::vector<IntExpr> wanted = index->shape();
  for (int k = 0; k < rankOf(x); k++) {
    check(k == axis || !provenLess(source[k], wanted[k]),
          "[gather] dim {} of index {} is larger than that of {}; expected at most {}", k, describe(index), describe(x),
          source[k].toString());
  }
  return define(fusion, ExprKind::Gather, x, index, x->dtype(), dimsOf(index), axis);
}

TensorView* index_select(TensorView* x, int64_t dim, TensorView* index) {
  Fusion& fusion = checkIndexing("index_select", x, index);
  check(rankOf(index) == 1, "[index_select] the index is {}, expected one dim; flatten it", describe(index));
  int axis = wrapAxis("index_select", dim, rankOf(x));
  std::vector<Dim> dims = dimsOf(x);
  dims[axis] = dimsOf(index)[0];
  return define(fusion, ExprKind::IndexSelect, x, index, x->dtype(), dims, axis);
}

TensorView* embedding_fwd(TensorView* index, TensorView* weight) {
  Fusion& fusion = checkIndexing("embedding_fwd", weight, index);
  check(rankOf(weight) == 2, "[embedding_fwd] the weight is {}, expected [V, D]", describe(weight));
  std::vector<Dim> dims = dimsOf(index);
  dims.push_back(dimsOf(weight)[1]);
  return define(fusion, ExprKind::Embedding, index, weight, weight->dtype(), dims, 0);
}

}  // namespace meshfuse
