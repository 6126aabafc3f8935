#include "schedule/row_major.h"

#include "base/error.h"

namespace meshfuse {

std::vector<IntExpr> rowMajorStrides(const std::vector<IntExpr>& extents) {
  std::vector<IntExpr> strides(extents.size());
  IntExpr stride = 1;
  for (size_t d = extents.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= extents[d];
  }
  return strides;
}

IntExpr linearize(const std::vector<IntExpr>& index, const std::vector<IntExpr>& extents) {
  std::vector<IntExpr> strides = rowMajorStrides(extents);
  IntExpr position = 0;
  for (size_t d = 0; d < index.size(); d++) {
    position += index[d] * strides[d];
  }
  return position;
}

std::vector<IntExpr> delinearize(const IntExpr& position, const std::vector<IntExpr>& extents) {
  std::vector<IntExpr> strides = rowMajorStrides(extents);
  std::vector<IntExpr> index(extents.size());
  for (size_t d = 0; d < extents.size(); d++) {
    if (extents[d].isConst(1)) {
      index[d] = 0;
      continue;
    }
    IntExpr quotient = floorDiv(position, strides[d]);
    // the outermost dim that is not 1 needs no remainder
    bool outermost = true;
    for (size_t o = 0; o < d; o++) {
      outermost = outermost && extents[o].isConst(1);
    }
    index[d] = outermost ? quotient : mod(quotient, extents[d]);
  }
  return index;
}

std::vector<IntExpr> reshapeIndex(const std::vector<IntExpr>& index, const std::vector<IntExpr>& from,
                                  const std::vector<IntExpr>& to) {
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
    std::vector<IntExpr> groupIndex(index.begin() + static_cast<int64_t>(f), index.begin() + static_cast<int64_t>(f1));
    std::vector<IntExpr> groupFrom(from.begin() + static_cast<int64_t>(f), from.begin() + static_cast<int64_t>(f1));
    std::vector<IntExpr> groupTo(to.begin() + static_cast<int64_t>(t), to.begin() + static_cast<int64_t>(t1));
    std::vector<IntExpr> part = delinearize(linearize(groupIndex, groupFrom), groupTo);
    result.insert(result.end(), part.begin(), part.end());
    f = f1;
    t = t1;
  }
  return result;
}

}  // namespace meshfuse
