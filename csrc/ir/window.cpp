#include "ir/window.h"

#include "base/error.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

// Whether a dim that a window cuts has one element: known, or left to the sizes.
IterType typeOf(const IntExpr& extent) {
  return extent.isConst(1)                           ? IterType::Broadcast
         : extent.isConst() || provenLess(1, extent) ? IterType::Iteration
                                                     : IterType::Symbolic;
}

}  // namespace

std::vector<IterDomain*> connectSlice(Fusion& fusion, const std::vector<IterDomain*>& root,
                                      std::span<const IntExpr> starts, std::span<const IntExpr> stops,
                                      std::span<const IntExpr> steps) {
  check(starts.size() == root.size() && stops.size() == root.size() && steps.size() == root.size(),
        "[slice] {} starts, {} stops and {} steps for {} dims; give one for each dim", starts.size(), stops.size(),
        steps.size(), root.size());
  std::vector<IterDomain*> logical;
  for (int64_t k = 0; k < std::ssize(root); k++) {
    const IntExpr& extent = root[k]->extent();
    check(!steps[k].upper() || *steps[k].upper() >= 1, "[slice] dim {} has step {}; expected at least 1", k,
          steps[k].toString());
    if (starts[k].isConst(0) && stops[k] == extent && steps[k].isConst(1)) {
      logical.push_back(root[k]);
      continue;
    }
    IntExpr count = ceilDiv(stops[k] - starts[k], steps[k]);
    IntExpr right = starts[k] + count * steps[k] - extent;
    bool everyOne = steps[k].isConst(1);
    IterDomain* window =
        fusion.idResize(root[k], IntExpr(0) - starts[k], right, everyOne ? typeOf(count) : IterType::Iteration);
    logical.push_back(everyOne ? window : fusion.idSplit(window, steps[k], true, typeOf(count)).first);
  }
  return logical;
}

std::vector<IterDomain*> connectPad(Fusion& fusion, const std::vector<IterDomain*>& root, std::span<const IntExpr> left,
                                    std::span<const IntExpr> right) {
  check(left.size() == root.size() && right.size() == root.size(),
        "[pad] {} left and {} right widths for {} dims; give one for each dim", left.size(), right.size(), root.size());
  return mapped(indices(root), [&](int64_t k) {
    const bool same = left[k].isConst(0) && right[k].isConst(0);
    return same ? root[k] : fusion.idResize(root[k], left[k], right[k], typeOf(root[k]->extent() + left[k] + right[k]));
  });
}

}  // namespace meshfuse
