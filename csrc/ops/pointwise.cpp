#include "ops/pointwise.h"

#include "ops/shape_ops.h"

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
    const Operand converted[] = {castOp(floating, a.val()), b};
    return pointOp(PointOp::Div, converted);
  }
  const Operand converted[] = {a, castOp(floating, b.val())};
  return pointOp(PointOp::Div, converted);
}

TensorView* lerp(TensorView* start, TensorView* end, Operand weight) {
  TensorView* difference = sub(end, start);
  auto combined = [&](PointOp op, Operand a, Operand b) {
    const Operand operands[] = {a, b};
    return Operand(pointOp(op, operands));
  };
  bool constant = weight.val() == nullptr;
  Fusion& fusion = start->fusion();
  Operand w = weight.in(fusion);
  Operand fromStart = combined(PointOp::Add, start, combined(PointOp::Mul, difference, w));
  Operand fromEnd = combined(PointOp::Sub, end, combined(PointOp::Mul, difference, combined(PointOp::Sub, 1.0, w)));
  if (constant && w.val()->isConst()) {
    const ScalarConst value = w.val()->constant();
    double number =
        std::holds_alternative<double>(value) ? std::get<double>(value) : static_cast<double>(std::get<int64_t>(value));
    return (number < 0.5 && number > -0.5 ? fromStart : fromEnd).val()->asTensor();
  }
  const Operand size[] = {w};
  const Operand isSmall[] = {Operand(pointOp(PointOp::Abs, size)), 0.5};
  const Operand choice[] = {Operand(pointOp(PointOp::Lt, isSmall)), fromStart, fromEnd};
  return pointOp(PointOp::Where, choice)->asTensor();
}

}  // namespace meshfuse
