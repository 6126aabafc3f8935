#include "digits/row_major.h"

#include <cstdint>
#include <utility>

#include "base/ranges.h"

namespace meshfuse {

std::vector<IntExpr> rowMajorStrides(const std::vector<IntExpr>& extents) {
  std::vector<IntExpr> strides(extents.size());
  IntExpr stride = 1;
  for (int64_t d = std::ssize(extents) - 1; d >= 0; d--) {
    strides[d] = stride;
    stride *= extents[d];
  }
  return strides;
}

IntExpr linearize(const std::vector<IntExpr>& index, const std::vector<IntExpr>& extents) {
  std::vector<IntExpr> strides = rowMajorStrides(extents);
  IntExpr position = 0;
  for (int64_t d = 0; d < std::ssize(index); d++) {
    position += index[d] * strides[d];
  }
  return position;
}

std::vector<IntExpr> delinearize(const IntExpr& position, const std::vector<IntExpr>& extents) {
  std::vector<IntExpr> strides = rowMajorStrides(extents);
  std::vector<IntExpr> index(extents.size(), 0);
  bool outermost = true;  // of the dims that are not 1: it needs no remainder
  for (int64_t d = 0; d < std::ssize(extents); d++) {
    if (!extents[d].isConst(1)) {
      IntExpr quotient = floorDiv(position, strides[d]);
      index[d] = std::exchange(outermost, false) ? quotient : mod(quotient, extents[d]);
    }
  }
  return index;
}

std::vector<IntExpr> reshapeIndex(const std::vector<IntExpr>& index, const std::vector<IntExpr>& from,
                                  const std::vector<IntExpr>& to) {
  auto slice = [](const std::vector<IntExpr>& list, int64_t begin, int64_t end) {
    return std::vector<IntExpr>(list.begin() + begin, list.begin() + end);
  };
  std::vector<IntExpr> result;
  size_t f = 0;
  size_t t = 0;
  while (f < from.size() || t < to.size()) {
    // the smallest groups of dims, one of each side, with equal products
    size_t f1 = f;
    size_t t1 = t;
    IntExpr pf = f1 < from.size() ? from[f1++] : IntExpr(1);
    IntExpr pt = t1 < to.size() ? to[t1++] : IntExpr(1);
    while (!(pf == pt)) {
      bool growFrom =
          pf.isConst() && pt.isConst() ? pf.constValue() < pt.constValue() : divideExactly(pt, pf).has_value();
      if (growFrom && f1 < from.size()) {
        pf *= from[f1++];
      } else if (!growFrom && t1 < to.size()) {
        pt *= to[t1++];
      } else {
        f1 = from.size();
        t1 = to.size();
        break;
      }
    }
    append(result, delinearize(linearize(slice(index, f, f1), slice(from, f, f1)), slice(to, t, t1)));
    f = f1;
    t = t1;
  }
  return result;
}

}  // namespace meshfuse
