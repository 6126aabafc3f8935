#include "ops/indexing.h"

#include "base/error.h"
#include "base/ranges.h"
#include "ops/factory.h"
#include "ops/pointwise.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

namespace {

void checkIndexing(std::string_view op, TensorView* x, TensorView* index) {
  checkTensor(op, x, "the tensor");
  checkTensor(op, index, "the index");
  (void)commonFusion(op, {x, index});
  check(isIntegral(index->dtype()), "[{}] the index is {}, expected integer elements; cast with castOp", op,
        describe(index));
}

void checkSameRank(std::string_view op, const TensorView* x, const TensorView* index) {
  check(rankOf(x) == rankOf(index) && rankOf(x) > 0,
        "[{}] {} and index {} have different numbers of dims, or none, expected equal ones; unsqueeze the index", op,
        describe(x), describe(index));
}

TensorView* define(ExprKind kind, TensorView* x, TensorView* index, const std::vector<Dim>& dims, int64_t dim) {
  return x->fusion().addOp(kind, {x, index}, x->dtype(), dims, {.dim = dim});
}

void checkPut(std::string_view op, TensorView* x, TensorView* index, TensorView* put) {
  checkIndexing(op, x, index);
  checkTensor(op, put, "the source");
  (void)commonFusion(op, {x, put});
  check(rankOf(x) > 0, "[{}] {} has no dims to index; reshape it", op, describe(x));
  check(x->dtype() == put->dtype(), "[{}] {} and {} have different types; cast one with castOp", op, describe(x),
        describe(put));
}

TensorView* definePut(ExprKind kind, TensorView* x, TensorView* index, TensorView* put, int64_t dim) {
  return x->fusion().addOp(kind, {x, index, put}, x->dtype(), dimsOf(x), {.dim = dim, .flags = {false}, .starts = {0}});
}

}  // namespace

TensorView* takeAlongAxis(TensorView* x, TensorView* index, int64_t dim) {
  checkIndexing("takeAlongAxis", x, index);
  checkSameRank("takeAlongAxis", x, index);
  int64_t axis = wrapAxis("takeAlongAxis", dim, rankOf(x));
  std::vector<Dim> source = dimsOf(x);
  std::vector<Dim> dims = dimsOf(index);
  for (int64_t k : indices(dims)) {
    if (k == axis) {
      continue;
    }
    bool stretches = mayStretch(dims[k]) || mayStretch(source[k]);
    check(stretches || !provenDifferent(dims[k].extent, source[k].extent),
          "[takeAlongAxis] extents differ in dim {}: {} and index {}; expected equal extents or a broadcast dim", k,
          describe(x), describe(index));
    dims[k] = stretched(source[k], dims[k]);
  }
  return calledAs("takeAlongAxis", define(ExprKind::TakeAlongAxis, x, index, dims, axis));
}

TensorView* gather(TensorView* x, int64_t dim, TensorView* index) {
  checkIndexing("gather", x, index);
  checkSameRank("gather", x, index);
  int64_t axis = wrapAxis("gather", dim, rankOf(x));
  std::vector<IntExpr> source = x->shape();
  std::vector<IntExpr> wanted = index->shape();
  for (int64_t k : indices(source)) {
    check(k == axis || !provenLess(source[k], wanted[k]),
          "[gather] dim {} of index {} is larger than that of {}; expected at most {}", k, describe(index), describe(x),
          source[k].toString());
  }
  return define(ExprKind::Gather, x, index, dimsOf(index), axis);
}

TensorView* index_select(TensorView* x, int64_t dim, TensorView* index) {
  checkIndexing("index_select", x, index);
  check(rankOf(index) == 1, "[index_select] the index is {}, expected one dim; flatten it", describe(index));
  int64_t axis = wrapAxis("index_select", dim, rankOf(x));
  std::vector<Dim> dims = dimsOf(x);
  dims[axis] = dimsOf(index)[0];
  return define(ExprKind::IndexSelect, x, index, dims, axis);
}

TensorView* select(TensorView* x, int64_t dim, Operand index) {
  checkTensor("select", x, "the tensor");
  check(rankOf(x) > 0, "[select] {} has no dims to choose from; reshape it", describe(x));
  const int64_t axis = wrapAxis("select", dim, rankOf(x));
  const IntExpr extent = x->shape()[axis];
  check(!index.isMissing() && isIntegral(index.dtype()),
        "[select] the index is null or no integer, expected an Int scalar; cast it with castOp");
  Fusion& fusion = commonFusion("select", {x, index.val() != nullptr ? index.val() : x});
  if (!index.isTensor()) {
    const IntExpr at = index.in(fusion)->intExpr();
    if (at.isConst() && extent.isConst()) {
      const int64_t count = extent.constValue();
      check(at.constValue() >= -count && at.constValue() < count,
            "[select] index {} is out of range for dim {} of {}; give {} to {}", at.constValue(), axis, describe(x),
            -count, count - 1);
      std::vector<Slice> ranges(rankOf(x));
      const int64_t start = at.constValue() + (at.constValue() < 0 ? count : 0);
      ranges[axis] = {fusion.intScalar(start), fusion.intScalar(start + 1), nullptr};
      return squeeze(slice(x, ranges), axis);
    }
  } else {
    check(rankOf(index.val()->asTensor()) == 0, "[select] the index is {}, expected no dims; use index_select",
          describe(index.val()->asTensor()));
  }
  // Where it is, or whether it is in range, only a run shows.
  TensorView* one = index.isTensor() ? reshape(index.val()->asTensor(), {1})
                                     : full(fusion, std::vector<int64_t>{1}, index, DataType::Int);
  TensorView* fromEnd = add(one, extent);
  one = where(lt(one, 0), fromEnd, one);
  return squeeze(calledAs("select", index_select(x, axis, one)), axis);
}

TensorView* embedding_fwd(TensorView* index, TensorView* weight) {
  checkIndexing("embedding_fwd", weight, index);
  check(rankOf(weight) == 2, "[embedding_fwd] the weight is {}, expected [V, D]", describe(weight));
  std::vector<Dim> dims = dimsOf(index);
  dims.push_back(dimsOf(weight)[1]);
  return calledAs("embedding_fwd", weight->fusion().addOp(ExprKind::Embedding, {index, weight}, weight->dtype(), dims,
                                                          {.flags = {false}, .starts = {0}}));
}

TensorView* embedding_backward(TensorView* dy, TensorView* index, Operand num_weights,
                               std::optional<int64_t> padding_idx) {
  checkTensor("embedding_backward", dy, "dy");
  checkIndexing("embedding_backward", dy, index);
  const std::vector<IntExpr> given = dy->shape();
  check(!given.empty() && mayBeEqual(std::vector(given.begin(), given.end() - 1), index->shape()),
        "[embedding_backward] dy is {}, expected the extents of index {} and then the features", describe(dy),
        describe(index));
  check(!num_weights.isMissing() && !num_weights.isTensor() && num_weights.dtype() == DataType::Int,
        "[embedding_backward] num_weights is a tensor, null or no integer; expected an Int scalar");
  if (padding_idx) {
    TensorView* counts = unsqueeze(ne(index, *padding_idx), rankOf(index));
    dy = maybeCastOp(dy->dtype(), where(counts, dy, 0));
  }
  const IntExpr rows = num_weights.in(dy->fusion())->intExpr();
  TensorView* none = full(dy->fusion(), std::vector<IntExpr>{rows, dy->shape().back()}, 0, dy->dtype());
  return calledAs("embedding_backward", indexPutAccumulate(none, index, dy));
}

TensorView* scatter(TensorView* x, int64_t dim, TensorView* index, TensorView* src) {
  checkPut("scatter", x, index, src);
  checkSameRank("scatter", x, index);
  checkSameRank("scatter", src, index);
  const int64_t axis = wrapAxis("scatter", dim, rankOf(x));
  const std::vector<IntExpr> table = x->shape();
  const std::vector<IntExpr> wanted = index->shape();
  const std::vector<IntExpr> given = src->shape();
  for (int64_t k : indices(table)) {
    check(k == axis || !provenDifferent(table[k], wanted[k]),
          "[scatter] dim {} of index {} differs from that of {}; expected equal extents outside dim {}", k,
          describe(index), describe(x), axis);
    check(!provenDifferent(given[k], wanted[k]),
          "[scatter] dim {} of {} differs from that of index {}; expected one shape", k, describe(src),
          describe(index));
  }
  return definePut(ExprKind::Scatter, x, index, src, axis);
}

TensorView* indexPutAccumulate(TensorView* x, TensorView* index, TensorView* value) {
  checkPut("indexPutAccumulate", x, index, value);
  check(x->dtype() != DataType::Bool, "[indexPutAccumulate] the Bool elements of {} cannot be added; cast it to Int",
        describe(x));
  std::vector<IntExpr> expected = index->shape();
  const std::vector<IntExpr> table = x->shape();
  expected.insert(expected.end(), table.begin() + 1, table.end());
  check(mayBeEqual(value->shape(), expected),
        "[indexPutAccumulate] the values are {}, expected {}: the extents of index {}, then those of a row of {}; "
        "reshape or expand them",
        describe(value), describe(expected), describe(index), describe(x));
  return calledAs("indexPutAccumulate", definePut(ExprKind::IndexPutAccumulate, x, index, value, 0));
}

}  // namespace meshfuse
