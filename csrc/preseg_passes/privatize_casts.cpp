#include "preseg_passes/privatize_casts.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/fusion.h"

namespace meshfuse {

namespace {

bool isFreeWidening(const Expr* e) {
  if (e->kind() != ExprKind::Cast || !e->input(0)->isTensor()) {
    return false;
  }
  const TensorView* out = e->tensorOutput();
  return dataTypeSize(out->dtype()) > dataTypeSize(e->input(0)->dtype()) && !out->hasDeviceMesh() &&
         !out->isFusionOutput();
}

}  // namespace

bool privatizeCasts(Fusion& fusion, PassContext& /*context*/) {
  if (std::ranges::none_of(fusion.tensors(), &TensorView::hasDeviceMesh)) {
    return false;  // nothing is sharded; kernels duplicate casts anyway
  }
  bool changed = false;
  for (Expr* cast : fusion.exprs()) {
    if (!isFreeWidening(cast)) {
      continue;
    }
    const std::vector<Expr*> uses = fusion.uses(cast->output());
    for (int64_t k = 1; k < std::ssize(uses); k++) {
      TensorView* copy = fusion.addOp(ExprKind::Cast, {cast->input(0)}, cast->output()->dtype(),
                                      dimsOf(cast->tensorOutput()), cast->attributes());
      for (const int64_t operand : uses[k]->positionsOf(cast->output())) {
        fusion.replaceInput(uses[k], operand, copy);
      }
      changed = true;
    }
  }
  return changed;
}

}  // namespace meshfuse
