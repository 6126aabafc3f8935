#include "interpret/scalar_value.h"

#include <algorithm>

#include "base/ranges.h"
#include "interpret/interpret.h"
#include "ir/fusion_cloner.h"

namespace meshfuse {

namespace {

// Copies the ops that compute a scalar, operands first.
void cloneDefinition(FusionCloner& cloner, const Val* val) {
  if (val->isConst() || val->isFusionInput() || val->definition() == nullptr || cloner.find(val) != nullptr) {
    return;
  }
  for (const Val* in : val->definition()->inputs()) {
    cloneDefinition(cloner, in);
  }
  cloner.clone(val->definition());
}

}  // namespace

double interpretScalar(const Fusion& fusion, const Val* val, std::span<const Argument> inputs) {
  Fusion small;
  FusionCloner cloner(fusion, small);
  std::vector<Argument> arguments;
  for (int64_t i : indices(inputs)) {
    if (!fusion.inputs()[i]->isTensor()) {
      small.addInput(cloner.clone(fusion.inputs()[i]));
      arguments.push_back(inputs[i]);
    }
  }
  cloneDefinition(cloner, val);
  TensorView* out = small.tensor(val->dtype(), {});
  small.addExpr(ExprKind::Full, {cloner.clone(val)}, {out});
  small.addOutput(out);
  return interpret(small, arguments)[0].item();
}

bool isInputFree(const Val* val) {
  if (val->isConst()) {
    return true;
  }
  if (val->isTensor() || val->isFusionInput() || val->definition() == nullptr) {
    return false;
  }
  return std::ranges::all_of(val->definition()->inputs(), isInputFree);
}

}  // namespace meshfuse
