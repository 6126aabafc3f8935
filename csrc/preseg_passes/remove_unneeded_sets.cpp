#include "preseg_passes/remove_unneeded_sets.h"

#include "ir/fusion.h"
#include "multidevice/sharding/shard_state.h"

namespace meshfuse {

bool removeUnneededSets(Fusion& fusion, PassContext& /*context*/) {
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    if (e->kind() != ExprKind::Set || !e->output()->isTensor()) {
      continue;
    }
    TensorView* from = e->input(0)->asTensor();
    TensorView* to = e->tensorOutput();
    if (to->isFusionOutput() || to->hasAllocation() || !(to->getDeviceMesh() == from->getDeviceMesh()) ||
        (to->hasDeviceMesh() && !provenEqual(shardState(from), shardState(to)))) {
      continue;
    }
    fusion.replaceUses(to, from);
    fusion.removeExpr(e);
    changed = true;
  }
  return changed;
}

}  // namespace meshfuse
