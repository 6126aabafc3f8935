#include "ops/pointwise.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

Val* trueDivide(Operand a, Operand b) {
  const Operand operands[] = {a, b};
  DataType met = promotedType(operands);
  if (isFloatingPoint(met)) {
    return pointOp(PointOp::Div, operands);
  }
  // One operand in floating form is enough: the other is promoted to it.
  bool tensors = a.isTensor() || b.isTensor();
  DataType floating = tensors ? DataType::Float : DataType::Double;
  if (a.val() != nullptr && (a.isTensor() || !b.isTensor())) {
    return div(castOp(floating, a.val()), b);
  }
  return div(a, castOp(floating, b.val()));
}

void checkStretch(std::string_view op, std::initializer_list<NamedOperand> operands) {
  std::vector<std::pair<std::string_view, const TensorView*>> before;
  for (const auto& [operand, value] : operands) {
    check(!value.isMissing(), "[{}] {} is null, expected a tensor or a scalar", op, operand);
    if (!value.isTensor()) {
      continue;
    }
    const TensorView* tv = value.val()->asTensor();
    for (const auto& [name, other] : before) {
      check(mayStretchTogether(tv, other),
            "[{}] {} is {}, {} is {}; expected equal extents or broadcast dims (a constant 1), from the last dim", op,
            operand, describe(tv), name, describe(other));
    }
    before.emplace_back(operand, tv);
  }
}

TensorView* lerp(TensorView* start, TensorView* end, Operand weight) {
  const BuilderCall call("lerp", start);
  checkStretch("lerp", {{"start", start}, {"end", end}, {"weight", weight}});
  TensorView* difference = sub(end, start);
  bool constant = weight.val() == nullptr;
  Val* w = weight.in(start->fusion());
  TensorView* fromStart = add(start, mul(difference, w));
  TensorView* fromEnd = sub(end, mul(difference, sub(1.0, w)));
  if (constant && w->isConst()) {
    const double number = toDouble(w->constant());
    return number < 0.5 && number > -0.5 ? fromStart : fromEnd;
  }
  return where(lt(abs(w), 0.5), fromStart, fromEnd);
}

}  // namespace meshfuse
