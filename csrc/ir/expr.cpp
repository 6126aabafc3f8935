#include "ir/expr.h"

#include <algorithm>

#include "base/ranges.h"
#include "ir/op_rule.h"
#include "ir/tensor_view.h"
#include "ir/val.h"

namespace meshfuse {

int64_t ExprAttributes::communications() const {
  const auto communicates = [](const HaloStep& step) { return step.kind != Collective::Local; };
  return (plan ? std::ranges::count_if(*plan, &CommStep::communicates) : 0) +
         (haloSteps ? std::ranges::count_if(*haloSteps, communicates) : 0);
}

std::vector<TensorView*> Expr::tensorInputs() const {
  auto tensors = std::views::filter(inputs_, &Val::isTensor);
  return mapped(tensors, [](Val* v) { return v->asTensor(); });
}

std::vector<int64_t> Expr::tensorPositions() const {
  return filtered(indices(inputs_), [this](int64_t k) { return inputs_[k]->isTensor(); });
}

std::vector<int64_t> Expr::positionsOf(const Val* val) const {
  return filtered(indices(inputs_), [&](int64_t k) { return inputs_[k] == val; });
}

TensorView* Expr::tensorOutput(int64_t k) const { return outputs_.at(k)->asTensor(); }

std::string_view Expr::opName() const {
  return kind_ == ExprKind::Point ? info(attributes_.point).name : ruleOf(kind_).name;
}

std::string_view Expr::calledName() const { return attributes_.calledAs.empty() ? opName() : attributes_.calledAs; }

}  // namespace meshfuse
