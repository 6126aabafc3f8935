#include "ops/builder_call.h"

#include <algorithm>

#include "ir/fusion.h"

namespace meshfuse {

namespace {

const TensorView* firstTensor(std::initializer_list<Operand> operands) {
  const Operand* tensor = std::ranges::find_if(operands, &Operand::isTensor);
  return tensor == operands.end() ? nullptr : tensor->val()->asTensor();
}

}  // namespace

BuilderCall::BuilderCall(std::string_view builder, const TensorView* operand)
    : builder_(builder),
      fusion_(operand == nullptr ? nullptr : &operand->fusion()),
      first_(fusion_ == nullptr ? 0 : fusion_->numExprs()) {}

BuilderCall::BuilderCall(std::string_view builder, std::initializer_list<Operand> operands)
    : BuilderCall(builder, firstTensor(operands)) {}

BuilderCall::~BuilderCall() {
  for (int64_t id = first_; fusion_ != nullptr && id < fusion_->numExprs(); id++) {
    if (Expr* e = fusion_->expr(id)) {
      fusion_->setCalledAs(e, builder_);
    }
  }
}

}  // namespace meshfuse
