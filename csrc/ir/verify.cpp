#include "ir/verify.h"

#include <algorithm>
#include <optional>
#include <set>

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

void addSymbols(const IntExpr& e, std::set<std::string>& symbols) {
  for (std::string& name : e.symbols()) {
    symbols.insert(std::move(name));
  }
}

// Symbols that have a value at a call: sizes of inputs and of mesh axes, Int scalars that are given or computed.
std::set<std::string> givenSymbols(const Fusion& fusion, const std::vector<TensorView*>& tensors) {
  std::set<std::string> symbols;
  for (const Val* in : fusion.inputs()) {
    for (const IntExpr& extent : in->isTensor() ? in->asTensor()->shape() : std::vector<IntExpr>{}) {
      addSymbols(extent, symbols);
    }
  }
  for (int id = 0; id < fusion.numVals(); id++) {
    const Val* v = fusion.val(id);
    if (v != nullptr && !v->isTensor() && v->dtype() == DataType::Int &&
        (v->isFusionInput() || v->definition() != nullptr)) {
      addSymbols(v->intExpr(), symbols);
    }
  }
  for (const TensorView* t : tensors) {
    for (int axis = 0; axis < t->getDeviceMesh().numAxes(); axis++) {
      addSymbols(t->getDeviceMesh().axisSize(axis), symbols);
    }
  }
  return symbols;
}

// The first symbol of `e` that is not given. Coordinates of the device are given where a local program runs.
std::optional<std::string> missingSymbol(const IntExpr& e, const std::set<std::string>& given) {
  for (const std::string& name : e.symbols()) {
    if (given.count(name) == 0 && !name.starts_with("coord.")) {
      return name;
    }
  }
  return std::nullopt;
}

// The sizes of results may depend on inputs only.
void verifySymbols(const std::vector<TensorView*>& tensors, const std::vector<Expr*>& exprs,
                   const std::set<std::string>& given, std::vector<std::string>& violations) {
  for (const TensorView* t : tensors) {
    for (const IterDomain* id : t->getLogicalDomain()) {
      if (std::optional<std::string> name = missingSymbol(id->extent(), given); name && !t->isFusionInput()) {
        violations.push_back(
            fmt::format("T{}: dim {} depends on {}, which occurs in no input; give extents that follow from the inputs",
                        t->id(), id->toString(), *name));
      }
    }
  }
  for (const Expr* e : exprs) {
    for (const Val* v : e->inputs()) {
      std::optional<std::string> name;
      if (!v->isTensor() && v->dtype() == DataType::Int) {
        name = missingSymbol(v->intExpr(), given);
      }
      if (name) {
        violations.push_back(fmt::format("{} = {}: operand {} depends on {}, which occurs in no input",
                                         e->output()->toString(), e->opName(), v->toString(), *name));
      }
    }
  }
}

}  // namespace

std::vector<std::string> verify(const Fusion& fusion) {
  std::vector<std::string> violations;
  const ExprSet set =
      fusion.outputs().empty() ? ExprSet::All : ExprSet::Needed;  // an unfinished fusion is verified whole
  std::vector<Expr*> exprs;
  try {
    exprs = fusion.exprs(set);
  } catch (const InternalError& e) {
    violations.emplace_back(e.what());
    return violations;
  }
  std::vector<TensorView*> tensors = fusion.tensors(set);
  for (const TensorView* t : tensors) {
    verifyDomains(*t, violations);
    verifyPartialDims(*t, violations);
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
    verifyContributions(*e, violations);
  }
  verifySymbols(tensors, exprs, givenSymbols(fusion, tensors), violations);
  for (const Val* v : fusion.outputs()) {
    if (!isGiven(v)) {
      violations.push_back(fmt::format("output {} is neither computed nor an input", v->toString()));
    }
  }
  return violations;
}

}  // namespace meshfuse
