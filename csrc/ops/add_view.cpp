#include "ops/add_view.h"

#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "ir/reshape.h"
#include "ir/window.h"

namespace meshfuse {

namespace {

using Ids = std::vector<IterDomain*>;

// The result of an expr whose first input has the root dims of the result.
template <class Connect>
TensorView* addView(ExprKind kind, std::vector<Val*> inputs, const Connect& connect, ExprAttributes attributes) {
  TensorView* in = inputs[0]->asTensor();
  TensorView* out = in->fusion().tensorFromRoot(in->dtype(), dimsOf(in), connect);
  in->fusion().addExpr(kind, std::move(inputs), {out}, std::move(attributes));
  return out;
}

}  // namespace

TensorView* addReshape(TensorView* in, const std::vector<IntExpr>& shape) {
  if (in->shape() == shape) {
    return in;
  }
  const auto connect = [&](Fusion& fusion, const Ids& root) { return connectReshape(fusion, root, shape); };
  return addView(ExprKind::Reshape, {in}, connect, {});
}

TensorView* addReshape(TensorView* in, const std::vector<int64_t>& shape) {
  return addReshape(in, std::vector<IntExpr>(shape.begin(), shape.end()));
}

TensorView* addPermute(TensorView* in, const std::vector<int64_t>& order) {
  if (std::is_sorted(order.begin(), order.end())) {
    return in;
  }
  const auto connect = [&](Fusion&, const Ids& root) { return mapped(order, [&](int64_t old) { return root[old]; }); };
  return addView(ExprKind::Permute, {in}, connect, {.order = order});
}

TensorView* addSlice(TensorView* in, const std::vector<IntExpr>& starts, const std::vector<IntExpr>& stops,
                     const std::vector<IntExpr>& steps) {
  const auto connect = [&](Fusion& fusion, const Ids& root) {
    return connectSlice(fusion, root, starts, stops, steps);
  };
  return addView(ExprKind::Slice, {in}, connect, {.starts = starts, .stops = stops, .steps = steps});
}

TensorView* addPad(TensorView* in, Val* fill, const std::vector<IntExpr>& before, const std::vector<IntExpr>& after) {
  const auto connect = [&](Fusion& fusion, const Ids& root) { return connectPad(fusion, root, before, after); };
  return addView(ExprKind::Pad, {in, fill}, connect, {.starts = before, .stops = after});
}

}  // namespace meshfuse
