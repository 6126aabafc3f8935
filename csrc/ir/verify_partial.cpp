// Dims of contributions to a reduction: which tensors have one, and which ops may read it.
#include <algorithm>
#include <cstdint>

#include "base/ranges.h"
#include "ir/op_rule.h"
#include "ir/verify.h"

namespace meshfuse {

namespace {

bool comesOfReduction(const IterDomain* id) {
  const IdExpr* e = id->definition();
  return e != nullptr &&
         std::ranges::any_of(e->in, [](const IterDomain* in) { return in->isReduction() || comesOfReduction(in); });
}

// The violation between dim p of an operand and the corresponding dim c of the result, or "".
std::string wrongPair(const Expr& e, const IterDomain* p, const IterDomain* c) {
  if (c->isPartial() && !(p->isPartial() && p->combine() == c->combine())) {
    return fmt::format("counts no contributions like dim {} of the result; expected {}", c->toString(), c->toString());
  }
  const ReduceOp op = e.attributes().reduce;
  if (c->isReduction() && p->isPartial() && p->combine() != op) {
    return fmt::format("counts contributions to {}, and is combined by {}; expected one op: mark it p{{{}{}}}",
                       name(p->combine()), name(op), p->extent().toString(),
                       op == ReduceOp::Sum ? "" : fmt::format(", {}", name(op)));
  }
  return "";
}

}  // namespace

void verifyPartialDims(const TensorView& tensor, std::vector<std::string>& violations) {
  Verifier verifier(tensor, violations);
  int64_t partial = 0;
  for (const IterDomain* id : tensor.noReductions()) {
    const bool isPart = comesOfReduction(id);
    const bool isOfOperand = tensor.definition() != nullptr && contains(tensor.getRootDomain(), id);
    partial += id->isPartial() ? 1 : 0;
    verifier.require(!id->isPartial() || accepts(id->combine(), tensor.dtype()),
                     "dim {} counts contributions to {} of {} elements, which cannot be combined; cast them", id,
                     name(id->combine()), tensor.dtype());
    verifier.require(!isPart || id->isPartial(),
                     "dim {} is a stored part of a reduced dim; its elements are contributions: mark it p{{{}}}", id,
                     id->extent());
    verifier.require(!id->isPartial() || isPart || isOfOperand,
                     "dim {} counts contributions, but is no part of a reduced dim; leave out the mark", id);
  }
  verifier.require(partial <= 1, "{} dims count contributions, expected one at most: combine those of one first",
                   partial);
}

void verifyContributions(const Expr& expr, std::vector<std::string>& violations) {
  if (expr.outputs().size() != 1 || !expr.output()->isTensor()) {
    return;
  }
  Verifier verifier(expr, violations);
  const std::vector<IterDomain*>& root = expr.tensorOutput()->getRootDomain();
  const auto kept = std::ranges::find_if(root, &IterDomain::isPartial);
  const bool keeps = keepsContributions(expr);
  if (kept != root.end()) {
    verifier.require(keeps, "dim {} of the result counts contributions, which {} does not keep; combine them before it",
                     *kept, expr.opName());
  }
  if (!keeps && expr.kind() != ExprKind::Reduce && expr.kind() != ExprKind::Redistribute) {
    return;
  }
  for (const TensorView* operand : expr.tensorInputs()) {
    const std::vector<IterDomain*> dims = operand->noReductions();
    for (int64_t k = 0; k < std::ssize(dims) && k < std::ssize(root); k++) {
      const std::string wrong = wrongPair(expr, dims[k], root[k]);
      verifier.require(wrong.empty(), "dim {} of {} {}", dims[k], static_cast<const Val*>(operand), wrong);
    }
  }
}

}  // namespace meshfuse
