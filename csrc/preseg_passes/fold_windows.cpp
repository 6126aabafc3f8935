#include "preseg_passes/fold_windows.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "analysis/pass_context.h"
#include "ir/fusion.h"
#include "multidevice/sharding/axis_facts.h"
#include "ops/add_view.h"
#include "preseg_passes/plain_tensor.h"

namespace meshfuse {

namespace {

struct Widths {
  std::vector<IntExpr> before;
  std::vector<IntExpr> after;
};

bool isFree(const TensorView* tv) {
  return !tv->hasDeviceMesh() && !tv->isFusionOutput() && !tv->isUserSharded() && !tv->hasAllocation();
}

// The widths of the one pad that replaces both.
std::optional<Widths> together(const Expr* pad, const Expr* slice) {
  const std::vector<IntExpr> extents = pad->input(0)->asTensor()->shape();
  const ExprAttributes& p = pad->attributes();
  const ExprAttributes& s = slice->attributes();
  Widths widths;
  for (int64_t k = 0; k < std::ssize(extents); k++) {
    if (!extents[k].isConst() || !p.starts[k].isConst() || !p.stops[k].isConst() || !s.starts[k].isConst() ||
        !s.stops[k].isConst() || !s.steps[k].isConst(1)) {
      return std::nullopt;
    }
    const int64_t extent = extents[k].constValue();
    const int64_t before = p.starts[k].constValue() - s.starts[k].constValue();
    const int64_t after = s.stops[k].constValue() - p.starts[k].constValue() - extent;
    if (before <= -extent || after <= -extent) {
      return std::nullopt;  // only padding is left
    }
    widths.before.emplace_back(before);
    widths.after.emplace_back(after);
  }
  return widths;
}

bool fold(Fusion& fusion, Expr* slice, const Prover& facts) {
  Expr* pad = slice->input(0)->definition();
  if (pad == nullptr || pad->kind() != ExprKind::Pad || !isFree(slice->input(0)->asTensor())) {
    return false;
  }
  const std::optional<Widths> widths = together(pad, slice);
  const std::vector<IterDomain*> dims = slice->tensorOutput()->noReductions();
  if (!widths || std::ranges::any_of(dims, [](const IterDomain* id) { return id->isBroadcast(); })) {
    return false;
  }
  TensorView* was = slice->tensorOutput();
  TensorView* from = pad->input(0)->asTensor();
  const auto areZero = [](const std::vector<IntExpr>& list) {
    return std::ranges::all_of(list, [](const IntExpr& e) { return e.isConst(0); });
  };
  TensorView* now = areZero(widths->before) && areZero(widths->after)
                        ? fusion.addOp(ExprKind::Set, {from}, from->dtype(), dimsOf(from))
                        : addPad(from, pad->input(1), widths->before, widths->after);
  if (was->hasDeviceMesh()) {
    setShardState(now, shardState(was, facts), facts);
  }
  fusion.removeExpr(slice);
  takePlace(was, now);
  if (fusion.uses(pad->output()).empty()) {
    fusion.removeExpr(pad);
  }
  return true;
}

}  // namespace

bool foldWindows(Fusion& fusion, PassContext& context) {
  const Prover facts = context.get<AxisFacts>().prover();
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    changed |= e->kind() == ExprKind::Slice && fold(fusion, e, facts);
  }
  return changed;
}

}  // namespace meshfuse
