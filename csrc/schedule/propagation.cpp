#include "schedule/propagation.h"

#include <algorithm>
#include <cstdint>
#include <ranges>

#include "base/ranges.h"
#include "digits/row_major.h"
#include "ir/fusion.h"
#include "ir/op_rule.h"
#include "schedule/reads.h"

namespace meshfuse {

std::optional<std::vector<IntExpr>> Propagation::indexOf(const TensorView* tensor) {
  const Partial& index = of(tensor);
  if (!std::ranges::all_of(index, [](const auto& i) { return i.has_value(); })) {
    return std::nullopt;
  }
  return mapped(index, [](const auto& i) { return *i; });
}

bool Propagation::isConflicted(const TensorView* tensor) const { return conflicts_.contains(tensor->id()); }

void Propagation::run() {
  std::vector<OpLinks> ops = mapped(group_.exprs, [&](const Expr* e) { return linksOf(*e); });
  do {
    changed_ = false;
    for (OpLinks& op : ops) {
      visit(op);
    }
    for (OpLinks& op : ops | std::views::reverse) {
      visit(op);
    }
  } while (changed_);
}

Propagation::Known& Propagation::known(const TensorView* tv) {
  auto [it, isNew] = known_.try_emplace(tv->id());
  if (isNew) {
    it->second.shape = tv->shape();
    for (const IntExpr& e : it->second.shape) {
      it->second.index.push_back(e.isConst(1) ? std::optional<IntExpr>(0) : std::nullopt);
    }
  }
  return it->second;
}

void Propagation::set(std::optional<IntExpr>& slot, const std::optional<IntExpr>& value) {
  if (value && !slot) {
    slot = value;
    changed_ = true;
  }
}

void Propagation::follow(Link& link) {
  if (*link.operand && *link.result) {
    if (!(**link.operand == **link.result)) {
      conflicts_.insert({link.resultId, link.operandId});
    }
    link.isSettled = true;
    return;
  }
  set(*link.result, *link.operand);
  set(*link.operand, *link.result);
}

// The index of `to` that follows from all of the index of `from`, unless it is too large.
std::optional<std::vector<IntExpr>> Propagation::reshaped(const TensorView* from, const TensorView* to) {
  std::optional<std::vector<IntExpr>> index = indexOf(from);
  if (!index) {
    return std::nullopt;
  }
  std::vector<IntExpr> derived = reshapeIndex(*index, from->shape(), to->shape());
  return isOvergrown(*index, derived) ? std::nullopt : std::optional(std::move(derived));
}

bool Propagation::agrees(const std::vector<IntExpr>& derived, const TensorView* tv) {
  return std::ranges::equal(derived, of(tv), [](const IntExpr& a, const auto& b) { return a == *b; });
}

void Propagation::reshape(const Expr& e) {
  const TensorView* from = e.tensorInputs()[0];
  const TensorView* to = e.tensorOutput();
  if (settled_.contains(e.id())) {
    return;
  }
  const bool bothKnown = indexOf(from) && indexOf(to);
  std::optional<std::vector<IntExpr>> back = reshaped(to, from);
  if (bothKnown && back && agrees(*back, from)) {
    settled_.insert(e.id());
    return;
  }
  std::optional<std::vector<IntExpr>> forward = reshaped(from, to);
  if (!bothKnown) {
    complete(to, forward);
    complete(from, back);
    return;
  }
  // the same position may be written in two ways: one direction that agrees proves it
  rewritten_ = true;
  settled_.insert(e.id());
  if (!forward || !agrees(*forward, to)) {
    conflicts_.insert({from->id(), to->id()});
  }
}

const Expr* Propagation::overgrown() {
  for (const Expr* e : group_.exprs) {
    if (e->kind() == ExprKind::Reshape &&
        indexOf(e->tensorInputs()[0]).has_value() != indexOf(e->tensorOutput()).has_value()) {
      return e;
    }
  }
  return nullptr;
}

void Propagation::complete(const TensorView* tv, const std::optional<std::vector<IntExpr>>& derived) {
  for (int64_t d = 0; derived && d < std::ssize(*derived); d++) {
    set(of(tv)[d], (*derived)[d]);
  }
}

Propagation::OpLinks Propagation::linksOf(const Expr& e) {
  OpLinks op;
  if (e.outputs().size() != 1 || !e.output()->isTensor() || readsElsewhere(e)) {
    return op;
  }
  if (ruleOf(e).form == OpForm::Reshape) {
    op.reshape = &e;
    return op;
  }
  for (int64_t operand = 0; operand < std::ssize(e.inputs()); operand++) {
    for (const DimPair& dims : linkedDims(e, operand)) {
      Known& from = known(e.input(operand)->asTensor());
      Known& to = known(e.tensorOutput());
      if (from.shape[dims.operand] == to.shape[dims.result]) {
        op.links.push_back({.operand = &from.index[dims.operand],
                            .result = &to.index[dims.result],
                            .operandId = e.input(operand)->id(),
                            .resultId = e.output()->id()});
      }
    }
  }
  return op;
}

void Propagation::visit(OpLinks& op) {
  if (op.reshape != nullptr) {
    reshape(*op.reshape);
  }
  for (Link& link : op.links) {
    if (!link.isSettled) {
      follow(link);
    }
  }
}

}  // namespace meshfuse
