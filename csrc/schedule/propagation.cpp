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
  do {
    changed_ = false;
    for (const Expr* e : group_.exprs) {
      visit(*e);
    }
    for (const Expr* e : group_.exprs | std::views::reverse) {
      visit(*e);
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

// Dim `pd` of p and dim `cd` of c are the same positions, unless one stretches.
void Propagation::same(const TensorView* p, size_t pd, const TensorView* c, size_t cd) {
  Known& parent = known(p);
  Known& child = known(c);
  if (!(parent.shape[pd] == child.shape[cd])) {
    return;
  }
  if (parent.index[pd] && child.index[cd]) {
    if (!(*parent.index[pd] == *child.index[cd])) {
      conflicts_.insert({c->id(), p->id()});
    }
    return;
  }
  set(child.index[cd], parent.index[pd]);
  set(parent.index[pd], child.index[cd]);
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

void Propagation::visit(const Expr& e) {
  if (e.outputs().size() != 1 || !e.output()->isTensor() || readsElsewhere(e)) {
    return;
  }
  if (ruleOf(e).form == OpForm::Reshape) {
    reshape(e);
    return;
  }
  for (int64_t operand = 0; operand < std::ssize(e.inputs()); operand++) {
    for (const DimPair& dims : linkedDims(e, operand)) {
      same(e.inputs()[operand]->asTensor(), dims.operand, e.tensorOutput(), dims.result);
    }
  }
}

}  // namespace meshfuse
