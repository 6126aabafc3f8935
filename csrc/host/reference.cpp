#include "host/reference.h"

#include "ir/fusion.h"

namespace meshfuse {

namespace {

// Copies the ops that compute a scalar, operands first.
void cloneScalar(FusionCloner& cloner, const Val* val) {
  if (val->isTensor() || val->isConst() || val->definition() == nullptr || cloner.find(val) != nullptr) {
    return;
  }
  for (const Val* in : val->definition()->inputs()) {
    cloneScalar(cloner, in);
  }
  cloner.clone(val->definition());
}

}  // namespace

std::shared_ptr<const Fusion> referenceOf(const Fusion& fusion, const Group& group,
                                          const FusionCloner::Rewrite& bound) {
  auto result = std::make_shared<Fusion>();
  FusionCloner cloner(fusion, *result, bound);
  for (const TensorView* in : group.inputs) {
    result->addInput(cloner.clone(in));
  }
  for (const Val* in : fusion.inputs()) {
    if (!in->isTensor()) {
      result->addInput(cloner.clone(in));
    }
  }
  for (const Expr* e : group.exprs) {
    for (const Val* in : e->inputs()) {
      cloneScalar(cloner, in);
    }
    cloner.clone(e);
  }
  for (const TensorView* out : group.outputs) {
    result->addOutput(cloner.clone(out));
  }
  return result;
}

std::shared_ptr<const Fusion> referenceWith(const std::shared_ptr<const Fusion>& reference,
                                            const std::map<std::string, int64_t>& values) {
  if (values.empty()) {
    return reference;
  }
  auto result = std::make_shared<Fusion>();
  FusionCloner cloner(*reference, *result, [&](const IntExpr& e) { return e.substitute(valuesIn(values)); });
  for (const Val* in : reference->inputs()) {
    result->addInput(cloner.clone(in));
  }
  for (const Expr* e : reference->exprs()) {
    cloner.clone(e);
  }
  for (const Val* out : reference->outputs()) {
    result->addOutput(cloner.clone(out));
  }
  return result;
}

}  // namespace meshfuse
