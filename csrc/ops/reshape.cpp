// reshape and flatten: row-major order kept, extents regrouped.
#include "ir/reshape.h"

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/ranges.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

TensorView* reshape(TensorView* x, const IntList& list) {
  const std::vector<IntExpr>& sizes = list.items();
  checkTensor("reshape", x, "operand");
  std::vector<IntExpr> from = x->shape();
  std::vector<IntExpr> to = sizes;
  std::optional<int64_t> open;
  IntExpr known = 1;
  for (int64_t k : indices(to)) {
    if (to[k].isConst(-1)) {
      check(!open, "[reshape] sizes {} contain -1 twice; expected at most once", describe(sizes));
      open = k;
      continue;
    }
    check(!to[k].isConst() || to[k].constValue() >= 0, "[reshape] size {} is {}, expected 0 or more, or one -1", k,
          to[k].toString());
    known *= to[k];
  }
  IntExpr total = product(from);
  if (open) {
    check(!known.isConst(0), "[reshape] -1 of {} is ambiguous: the other sizes make 0; give all sizes",
          describe(sizes));
    std::optional<IntExpr> exact = divideExactly(total, known);
    check(exact || !total.isConst() || !known.isConst(),
          "[reshape] {} has {} elements, which the sizes {} do not divide; give sizes whose product divides it",
          describe(x), total.toString(), describe(sizes));
    to[*open] = exact ? *exact : floorDiv(total, known);
  }
  check(open || !provenDifferent(total, product(to)),
        "[reshape] {} has {} elements, sizes {} make {}; expected equal numbers", describe(x), total.toString(),
        describe(sizes), product(to).toString());
  if (from == to) {
    return set(x);
  }
  bool connects = canConnectReshape(from, to);
  TensorView* out =
      x->fusion().tensorFromRoot(x->dtype(), dimsOf(x), [&](Fusion& fusion, const std::vector<IterDomain*>& root) {
        if (connects) {
          return connectReshape(fusion, root, to);
        }
        // Which splits and merges these are waits for the sizes.
        return mapped(to, [&](const IntExpr& extent) { return fusion.idNew(dynamicDimOf(extent)); });
      });
  x->fusion().addExpr(ExprKind::Reshape, {x}, {out});
  return out;
}

TensorView* reshape(TensorView* x, const std::vector<int64_t>& original, const std::vector<int64_t>& sizes) {
  checkTensor("reshape", x, "operand");
  std::vector<IntExpr> shape = x->shape();
  check(original.size() == shape.size(), "[reshape] got {} original sizes for {}; expected one for each dim",
        original.size(), describe(x));
  for (int64_t k : indices(shape)) {
    check(!provenDifferent(shape[k], original[k]),
          "[reshape] dim {} of {} has extent {}, the original sizes say {}; give the sizes that it has", k, describe(x),
          shape[k].toString(), original[k]);
  }
  const std::vector<IntExpr> from(original.begin(), original.end());
  const IntExpr total = product(from);
  // A symbolic tensor is known by its original sizes: only where the result differs from them is it reshaped.
  std::vector<IntExpr> to(sizes.begin(), sizes.end());
  const IntExpr known = productOf(to, [](const IntExpr& size) { return size.isConst(-1) ? IntExpr(1) : size; });
  for (IntExpr& size : to) {
    if (size.isConst(-1) && !known.isConst(0)) {
      size = floorDiv(total, known);
    }
  }
  check(product(to) == total, "[reshape] original sizes {} make {} elements, sizes {} make {}; expected equal numbers",
        describe(from), total.toString(), describe(to), product(to).toString());
  return reshape(x, to);
}

TensorView* flatten(TensorView* x, int64_t from, int64_t to) {
  checkTensor("flatten", x, "operand");
  if (rankOf(x) == 0) {
    return reshape(x, {1});
  }
  int64_t first = wrapAxis("flatten", from, rankOf(x));
  int64_t last = wrapAxis("flatten", to, rankOf(x));
  check(first <= last, "[flatten] from {} to {} of {}; expected a first axis that is not after the last", from, to,
        describe(x));
  std::vector<IntExpr> shape = x->shape();
  std::vector<IntExpr> merged(shape.begin(), shape.begin() + first);
  merged.push_back(product({shape.begin() + first, shape.begin() + last + 1}));
  merged.insert(merged.end(), shape.begin() + last + 1, shape.end());
  return reshape(x, merged);
}

}  // namespace meshfuse
