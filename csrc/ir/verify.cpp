#include "ir/verify.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <set>

#include "base/error.h"
#include "ir/fusion.h"
#include "ir/text.h"

namespace meshfuse {

namespace {

// Whether a builder has the name of an op in another spelling, as takeAlongAxis and embedding_fwd have.
bool isSpelling(std::string_view builder, std::string_view op) {
  const auto letters = [](std::string_view name) {
    std::string text;
    for (const char c : name) {
      if (c != '_') {
        text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      }
    }
    return text;
  };
  return letters(builder) == letters(op) || letters(builder) == letters(op) + "fwd";
}

// The called builder, and before it the op, if it is one of several that the builder makes.
std::string calledOp(const Expr& e) {
  const std::string_view called = e.attributes().calledAs;
  return called.empty() || isSpelling(called, e.opName()) ? std::string(e.calledName())
                                                          : fmt::format("{} of {}", e.opName(), called);
}

}  // namespace

std::string Verifier::subject() const {
  if (expr_ == nullptr) {
    return tensor_->Val::toString();
  }
  return fmt::format("{} = {}", expr_->outputs().empty() ? "nothing" : expr_->output()->toString(), calledOp(*expr_));
}

namespace {

// A dim of a tensor is in no other tensor.
void verifyOwners(const std::vector<TensorView*>& tensors, std::vector<std::string>& violations) {
  std::vector<std::pair<int64_t, const TensorView*>> owners;
  for (const TensorView* t : tensors) {
    for (const auto* domain : {&t->getRootDomain(), &t->getLogicalDomain(), &t->getLoopDomain()}) {
      for (const IterDomain* id : *domain) {
        owners.emplace_back(id->id(), t);
      }
    }
  }
  std::ranges::stable_sort(owners, {}, [](const auto& owner) { return owner.first; });
  for (int64_t k = 1; k < std::ssize(owners); k++) {
    if (owners[k].first == owners[k - 1].first && owners[k].second != owners[k - 1].second) {
      violations.push_back(fmt::format("T{} and T{} share a dim; give each tensor its own", owners[k - 1].second->id(),
                                       owners[k].second->id()));
    }
  }
}

bool isIntScalar(const Val* v) { return !v->isTensor() && v->dtype() == DataType::Int; }

bool isGiven(const Val* v) {
  return v->definition() != nullptr || v->isFusionInput() || isIntScalar(v) || (!v->isTensor() && v->isConst());
}

// Symbols that have a value before a call runs: sizes of inputs and of mesh axes, Int scalars that are given. "T3." stands for all elements of
// the Int input T3 of one dim of constant size, see TensorView::element().
std::set<std::string> givenSymbols(const Fusion& fusion, const std::vector<TensorView*>& tensors) {
  std::set<std::string> symbols;
  const auto add = [&](const IntExpr& e) { std::ranges::move(e.symbols(), std::inserter(symbols, symbols.end())); };
  for (const Val* in : fusion.inputs()) {
    if (in->isTensor()) {
      const std::vector<IntExpr> shape = in->asTensor()->shape();
      std::ranges::for_each(shape, add);
      if (in->dtype() == DataType::Int && shape.size() == 1 && shape[0].isConst()) {
        symbols.insert(in->Val::toString() + ".");
      }
    }
  }
  for (int64_t id = 0; id < fusion.numVals(); id++) {
    const Val* v = fusion.val(id);
    if (v != nullptr && isIntScalar(v) && v->isFusionInput()) {
      add(v->intExpr());
    }
  }
  for (const TensorView* t : tensors) {
    for (int64_t axis = 0; axis < t->getDeviceMesh().numAxes(); axis++) {
      add(t->getDeviceMesh().axisSize(axis));
    }
  }
  return symbols;
}

// The first symbol of `e` that is not given. Coordinates of the device are given where a local program runs.
std::optional<std::string> missingSymbol(const IntExpr& e, const std::set<std::string>& given) {
  const std::vector<std::string> symbols = e.symbols();
  const auto missing = std::ranges::find_if(symbols, [&](const std::string& name) {
    const std::string list = name.substr(0, name.find('.') + 1);
    return !given.contains(name) && !given.contains(list) && !name.starts_with("coord.");
  });
  return missing == symbols.end() ? std::nullopt : std::optional(*missing);
}

// The sizes of results may depend on inputs only.
void verifySymbols(const std::vector<TensorView*>& tensors, const std::vector<Expr*>& exprs,
                   const std::set<std::string>& given, std::vector<std::string>& violations) {
  for (const TensorView* t : tensors) {
    for (const IterDomain* id : t->getLogicalDomain()) {
      if (const std::optional<std::string> name = missingSymbol(id->extent(), given); name && !t->isFusionInput()) {
        Verifier(*t, violations)
            .report("dim {} depends on {}, which occurs in no input; give extents that follow from the inputs", id,
                    *name);
      }
    }
  }
  for (const Expr* e : exprs) {
    for (const Val* v : e->inputs()) {
      const bool isExpression = isIntScalar(v) && v->definition() == nullptr;
      if (const auto name = isExpression ? missingSymbol(v->intExpr(), given) : std::nullopt) {
        Verifier(*e, violations).report("operand {} depends on {}, which occurs in no input", v, *name);
      }
    }
    const ExprAttributes& a = e->attributes();
    for (const std::vector<IntExpr>* list : {&a.starts, &a.stops, &a.steps}) {
      for (const IntExpr& position : *list) {
        if (const std::optional<std::string> name = missingSymbol(position, given)) {
          Verifier(*e, violations).report("{} depends on {}, which occurs in no input", position, *name);
        }
      }
    }
  }
}

}  // namespace

std::vector<std::string> verify(const Fusion& fusion) {
  std::vector<std::string> violations;
  // An unfinished fusion is verified whole.
  const ExprSet set = fusion.outputs().empty() ? ExprSet::All : ExprSet::Needed;
  std::vector<Expr*> exprs;
  try {
    exprs = fusion.exprs(set);
  } catch (const InternalError& e) {
    return {e.what()};
  }
  const std::vector<TensorView*> tensors = fusion.tensors(set);
  for (const TensorView* t : tensors) {
    verifyDomains(*t, violations);
    verifyPartialDims(*t, violations);
  }
  verifyOwners(tensors, violations);
  for (const Expr* e : exprs) {
    for (const Val* v : e->inputs()) {
      Verifier(*e, violations).require(isGiven(v), "operand {} is neither computed nor an input", v);
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
