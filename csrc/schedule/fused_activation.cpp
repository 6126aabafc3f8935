#include "schedule/fused_activation.h"

#include <cstdint>
#include <set>
#include <variant>

#include "ir/fusion.h"
#include "ir/op_rule.h"

namespace meshfuse {

namespace {

// Compares the ops of a group with an activation, from the result back to the contraction.
class Match {
 public:
  explicit Match(const Group& group) : group_(group), product_(group.exprs[0]->output()) {}

  std::optional<Activation> run() {
    const Val* out = group_.outputs[0];
    const Val* inner = definedBy(out, ExprKind::Cast) != nullptr ? out->definition()->input(0) : out;
    seen_ = {group_.exprs[0]->id()};
    if (inner != out) {
      seen_.insert(out->definition()->id());
    }
    return isRelu(inner) && seen_.size() == group_.exprs.size() ? std::optional(Activation::Relu) : std::nullopt;
  }

 private:
  static const Expr* definedBy(const Val* val, ExprKind kind) {
    const Expr* e = val->definition();
    return e != nullptr && e->kind() == kind ? e : nullptr;
  }

  // The result of the contraction, widened or not.
  bool isProduct(const Val* val) {
    if (val == product_) {
      return true;
    }
    const Expr* cast = definedBy(val, ExprKind::Cast);
    if (cast == nullptr || cast->input(0) != product_ || cast->output()->dtype() != DataType::Float ||
        !isHalfPrecision(product_->dtype())) {
      return false;
    }
    seen_.insert(cast->id());
    return true;
  }

  static bool isZero(const Val* val) {
    const ScalarConst constant = val->isTensor() ? ScalarConst() : val->constant();
    const auto* real = std::get_if<double>(&constant);
    const auto* whole = std::get_if<int64_t>(&constant);
    return real != nullptr ? *real == 0 : whole != nullptr && *whole == 0;
  }

  bool isRelu(const Val* val) {
    const Expr* e = val->definition();
    if (e == nullptr || e->kind() != ExprKind::Point || e->attributes().point != PointOp::Maximum) {
      return false;
    }
    seen_.insert(e->id());
    return (isProduct(e->input(0)) && isZero(e->input(1))) || (isProduct(e->input(1)) && isZero(e->input(0)));
  }

  const Group& group_;
  const Val* product_;
  std::set<int64_t> seen_;  // the ops that the activation consists of, by id
};

}  // namespace

std::optional<Activation> activationOf(const Group& group) {
  if (group.exprs.size() == 1) {
    return Activation::None;
  }
  if (group.outputs.size() != 1 || group.outputs[0]->dtype() != group.exprs[0]->output()->dtype()) {
    return std::nullopt;
  }
  return Match(group).run();
}

}  // namespace meshfuse
