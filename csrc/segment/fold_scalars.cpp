#include "segment/fold_scalars.h"

#include "interpret/scalar_value.h"
#include "ir/fusion.h"

namespace meshfuse {

bool foldScalars(Fusion& fusion, LocalContext&) {
  bool changed = false;
  for (Expr* e : fusion.exprs()) {
    if (e->outputs().size() != 1 || e->output()->isTensor() || e->output()->dtype() == DataType::Int ||
        !isInputFree(e->output())) {
      continue;
    }
    double value = interpretScalar(fusion, e->output(), {});
    Val* constant = e->output()->dtype() == DataType::Bool ? fusion.scalar(value != 0) : fusion.scalar(value);
    fusion.replaceUses(e->output(), constant);
    changed = true;
  }
  return changed;
}

}  // namespace meshfuse
