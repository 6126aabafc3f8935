#include "exec/check_routines.h"

#include <algorithm>

#include "device/device.h"
#include "exec/planned_program.h"
#include "ir/fusion.h"

namespace meshfuse {

void checkRoutines(const PlannedProgram& program, const Device& device) {
  if (device.id() == DeviceId::cpu()) {
    return;
  }
  const auto hasNoElements = [](const TensorView* tv) {
    return std::ranges::any_of(tv->shape(), [](const IntExpr& e) { return e.isConst(0); });
  };
  for (const Expr* e : program.planned->exprs()) {
    if (std::ranges::none_of(e->tensorInputs(), hasNoElements)) {  // else no rank runs it
      device.expectRoutine(*e);
    }
  }
}

}  // namespace meshfuse
