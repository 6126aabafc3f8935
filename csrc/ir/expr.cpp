#include "ir/expr.h"

#include "ir/op_rule.h"
#include "ir/tensor_view.h"
#include "ir/val.h"

namespace meshfuse {

std::vector<TensorView*> Expr::tensorInputs() const {
  std::vector<TensorView*> tensors;
  for (Val* v : inputs_) {
    if (v->isTensor()) {
      tensors.push_back(v->asTensor());
    }
  }
  return tensors;
}

std::vector<int> Expr::tensorPositions() const {
  std::vector<int> positions;
  for (int k = 0; k < std::ssize(inputs_); k++) {
    if (inputs_[k]->isTensor()) {
      positions.push_back(k);
    }
  }
  return positions;
}

std::vector<int> Expr::positionsOf(const Val* val) const {
  std::vector<int> positions;
  for (int k = 0; k < std::ssize(inputs_); k++) {
    if (inputs_[k] == val) {
      positions.push_back(k);
    }
  }
  return positions;
}

TensorView* Expr::tensorOutput(int k) const { return outputs_.at(k)->asTensor(); }

std::string_view Expr::opName() const {
  return kind_ == ExprKind::Point ? info(attributes_.point).name : ruleOf(kind_).name;
}

}  // namespace meshfuse
