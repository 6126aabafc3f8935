#include "ops/add_view.h"

#include <algorithm>

#include "ir/reshape.h"
#include "ir/window.h"

namespace meshfuse {

TensorView* addReshape(TensorView* in, const std::vector<int64_t>& shape) {
  if (in->constantShape() == shape) {
    return in;
  }
  const std::vector<IntExpr> extents(shape.begin(), shape.end());
  TensorView* out = in->fusion().tensorFromRoot(
      in->dtype(), dimsOf(in),
      [&](Fusion& fusion, const std::vector<IterDomain*>& root) { return connectReshape(fusion, root, extents); });
  in->fusion().addExpr(ExprKind::Reshape, {in}, {out});
  return out;
}

TensorView* addPermute(TensorView* in, const std::vector<int>& order) {
  if (std::is_sorted(order.begin(), order.end())) {
    return in;
  }
  TensorView* out =
      in->fusion().tensorFromRoot(in->dtype(), dimsOf(in), [&](Fusion&, const std::vector<IterDomain*>& root) {
        std::vector<IterDomain*> logical;
        for (int old : order) {
          logical.push_back(root[old]);
        }
        return logical;
      });
  ExprAttributes attributes;
  attributes.order = order;
  in->fusion().addExpr(ExprKind::Permute, {in}, {out}, attributes);
  return out;
}

TensorView* addSlice(TensorView* in, const std::vector<IntExpr>& starts, const std::vector<IntExpr>& stops,
                     const std::vector<IntExpr>& steps) {
  TensorView* out =
      in->fusion().tensorFromRoot(in->dtype(), dimsOf(in), [&](Fusion& fusion, const std::vector<IterDomain*>& root) {
        return connectSlice(fusion, root, starts, stops, steps);
      });
  ExprAttributes attributes;
  attributes.starts = starts;
  attributes.stops = stops;
  attributes.steps = steps;
  in->fusion().addExpr(ExprKind::Slice, {in}, {out}, attributes);
  return out;
}

TensorView* addPad(TensorView* in, Val* fill, const std::vector<IntExpr>& before, const std::vector<IntExpr>& after) {
  TensorView* out = in->fusion().tensorFromRoot(
      in->dtype(), dimsOf(in),
      [&](Fusion& fusion, const std::vector<IterDomain*>& root) { return connectPad(fusion, root, before, after); });
  ExprAttributes attributes;
  attributes.starts = before;
  attributes.stops = after;
  in->fusion().addExpr(ExprKind::Pad, {in, fill}, {out}, attributes);
  return out;
}

}  // namespace meshfuse
