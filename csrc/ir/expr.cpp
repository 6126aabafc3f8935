#include "ir/expr.h"

#include "base/ranges.h"
#include "ir/op_rule.h"
#include "ir/tensor_view.h"
#include "ir/val.h"

namespace meshfuse {

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

}  // namespace meshfuse
