#include "ir/verify.h"

#include <algorithm>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {

namespace {

// A dim of a tensor is in no other tensor.
void verifyOwners(const std::vector<TensorView*>& tensors, std::vector<std::string>& violations) {
  std::vector<std::pair<int, const TensorView*>> owners;
  for (const TensorView* t : tensors) {
    for (const auto* domain : {&t->getRootDomain(), &t->getLogicalDomain(), &t->getLoopDomain()}) {
      for (const IterDomain* id : *domain) {
        owners.emplace_back(id->id(), t);
      }
    }
  }
  std::stable_sort(owners.begin(), owners.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (size_t k = 1; k < owners.size(); k++) {
    if (owners[k].first == owners[k - 1].first && owners[k].second != owners[k - 1].second) {
      violations.push_back(fmt::format("T{} and T{} share a dim; give each tensor its own", owners[k - 1].second->id(),
                                       owners[k].second->id()));
    }
  }
}

bool isGiven(const Val* v) {
  return v->definition() != nullptr || v->isFusionInput() ||
         (!v->isTensor() && (v->isConst() || v->dtype() == DataType::Int));
}

}  // namespace

std::vector<std::string> verify(const Fusion& fusion) {
  std::vector<std::string> violations;
  std::vector<Expr*> exprs;
  try {
    exprs = fusion.exprs(fusion.outputs().empty());
  } catch (const InternalError& e) {
    violations.emplace_back(e.what());
    return violations;
  }
  std::vector<TensorView*> tensors = fusion.tensors(fusion.outputs().empty());
  for (const TensorView* t : tensors) {
    verifyDomains(*t, violations);
  }
  verifyOwners(tensors, violations);
  for (const Expr* e : exprs) {
    for (const Val* v : e->inputs()) {
      if (!isGiven(v)) {
        violations.push_back(fmt::format("{} = {}: operand {} is neither computed nor an input",
                                         e->output()->toString(), e->opName(), v->toString()));
      }
    }
    verifyExpr(*e, violations);
  }
  for (const Val* v : fusion.outputs()) {
    if (!isGiven(v)) {
      violations.push_back(fmt::format("output {} is neither computed nor an input", v->toString()));
    }
  }
  return violations;
}

}  // namespace meshfuse
