#include "ops/operand.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "ops/shape_ops.h"
#include "ops/shape_rules.h"

namespace meshfuse {

Val* Operand::in(Fusion& fusion) const {
  if (val_ != nullptr) {
    return val_;
  }
  return std::holds_alternative<std::monostate>(number_) ? fusion.intScalar(expr_) : fusion.scalar(number_);
}

DataType Operand::dtype() const {
  if (val_ != nullptr) {
    return val_->dtype();
  }
  if (std::holds_alternative<double>(number_)) {
    return DataType::Double;
  }
  return std::holds_alternative<bool>(number_) ? DataType::Bool : DataType::Int;
}

IntList::IntList(const std::vector<Val*>& items) {
  for (Val* item : items) {
    check(item != nullptr, "[sizes] item {} is null, expected an Int scalar", items_.size());
    check(!item->isTensor() && item->dtype() == DataType::Int,
          "[sizes] item {} is {} of type {}, expected an Int scalar", items_.size(), item->toString(),
          name(item->dtype()));
    fusion_ = &item->fusion();
    items_.push_back(item->intExpr());
  }
}

double toDouble(const ScalarConst& value) {
  const auto* number = std::get_if<double>(&value);
  const auto* integer = std::get_if<int64_t>(&value);
  return number != nullptr       ? *number
         : integer != nullptr    ? static_cast<double>(*integer)
         : std::get<bool>(value) ? 1
                                 : 0;
}

Fusion& IntList::fusion() const { return fusion_ != nullptr ? *fusion_ : *FusionGuard::current(); }

namespace {

std::optional<DataType> meet(std::optional<DataType> a, std::optional<DataType> b) {
  return a && b ? promoteTypes(*a, *b) : a ? a : b;
}

// `strong` decides unless `weak` is of a higher category.
std::optional<DataType> weigh(std::optional<DataType> strong, std::optional<DataType> weak) {
  if (!strong || !weak || info(*strong).category >= info(*weak).category) {
    return strong ? strong : weak;
  }
  return promoteTypes(*strong, *weak);
}

// The type an op of the table computes operands of type `type` in. `scalars`: no operand is a tensor.
DataType computeType(const PointOpInfo& op, DataType type, bool scalars) {
  type = accumulateType(type);
  bool floating = isFloatingPoint(type);
  switch (op.types) {
    case OpTypes::Any:
      return type;
    case OpTypes::Number:
      return type == DataType::Bool ? DataType::Int : type;
    case OpTypes::Floating:
      return floating ? type : scalars ? DataType::Double : DataType::Float;
    case OpTypes::Integer:
      check(!floating, "[{}] operands are {}, expected integers; cast with castOp, or use fmod, remainder or truediv",
            op.name, name(type));
      return type == DataType::Bool ? DataType::Int : type;
    case OpTypes::Bits:
      check(!floating, "[{}] operands are {}, expected integers or Bool; cast with castOp", op.name, name(type));
      return type;
  }
  return type;
}

// On Bools, + and * mean what they do in PyTorch.
PointOp boolForm(PointOp op) {
  switch (op) {
    case PointOp::Add:
    case PointOp::Maximum:
      return PointOp::BitwiseOr;
    case PointOp::Mul:
    case PointOp::Minimum:
      return PointOp::BitwiseAnd;
    default:
      return op;
  }
}

bool isRounding(PointOp op) {
  return op == PointOp::Ceil || op == PointOp::Floor || op == PointOp::Round || op == PointOp::Trunc;
}

// Integer scalars are expressions, so that extents made of them can be compared; nullptr where the op has no such form, or an operand is
// computed: an expression would not show that it needs the op that computes it.
Val* foldInteger(Fusion& fusion, PointOp op, const std::vector<Val*>& in) {
  const auto isGiven = [](const Val* val) { return val->dtype() == DataType::Int && val->definition() == nullptr; };
  if (!std::ranges::all_of(in, isGiven)) {
    return nullptr;
  }
  const IntExpr& a = in[0]->intExpr();
  if (op == PointOp::Neg) {
    return fusion.intScalar(IntExpr(0) - a);
  }
  if (in.size() != 2) {
    return nullptr;
  }
  const IntExpr& b = in[1]->intExpr();
  bool natural = a.lower().value_or(-1) >= 0 && b.lower().value_or(0) >= 1;
  switch (op) {
    case PointOp::Add:
      return fusion.intScalar(a + b);
    case PointOp::Sub:
      return fusion.intScalar(a - b);
    case PointOp::Mul:
      return fusion.intScalar(a * b);
    case PointOp::Maximum:
      return fusion.intScalar(max(a, b));
    case PointOp::Minimum:
      return fusion.intScalar(min(a, b));
    case PointOp::Div:
      return natural ? fusion.intScalar(floorDiv(a, b)) : nullptr;
    case PointOp::CeilDiv:
      return natural ? fusion.intScalar(ceilDiv(a, b)) : nullptr;
    case PointOp::Mod:
      return natural ? fusion.intScalar(mod(a, b)) : nullptr;
    default:
      return nullptr;
  }
}

// Constants of the arithmetic that composed ops do on their own numbers.
Val* foldDouble(Fusion& fusion, PointOp op, const std::vector<Val*>& in) {
  if (!std::ranges::all_of(in, [](const Val* val) { return val->isConst() && val->dtype() == DataType::Double; })) {
    return nullptr;
  }
  double a = toDouble(in[0]->constant());
  double b = in.size() > 1 ? toDouble(in[1]->constant()) : 0;
  switch (op) {
    case PointOp::Neg:
      return fusion.scalar(-a);
    case PointOp::Reciprocal:
      return fusion.scalar(1 / a);
    case PointOp::Add:
      return fusion.scalar(a + b);
    case PointOp::Sub:
      return fusion.scalar(a - b);
    case PointOp::Mul:
      return fusion.scalar(a * b);
    case PointOp::Div:
      return fusion.scalar(a / b);
    default:
      return nullptr;
  }
}

Val* scalarPoint(Fusion& fusion, PointOp op, const std::vector<Val*>& in, DataType type) {
  if (Val* folded = foldInteger(fusion, op, in)) {
    return folded;
  }
  if (Val* folded = foldDouble(fusion, op, in)) {
    return folded;
  }
  Val* out = fusion.inputScalar(info(op).givesBool ? DataType::Bool : type);
  fusion.addExpr(ExprKind::Point, in, {out}, {.point = op});
  return out;
}

}  // namespace

namespace {

// The narrowest signed type that holds all values of the unsigned type `t`.
DataType signedFor(DataType t) { return dataTypeSize(t) == 1 ? DataType::Short : DataType::Int32; }

}  // namespace

DataType promoteTypes(DataType a, DataType b) {
  if (isIntegral(a) && isIntegral(b) && isUnsigned(a) != isUnsigned(b)) {
    return isUnsigned(a) ? promoteTypes(signedFor(a), b) : promoteTypes(a, signedFor(b));
  }
  if (info(a).category != info(b).category) {
    return info(a).category > info(b).category ? a : b;
  }
  if (a != b && dataTypeSize(a) == dataTypeSize(b)) {
    return accumulateType(a);  // two 16-bit floating types: neither holds the values of the other
  }
  return dataTypeSize(a) >= dataTypeSize(b) ? a : b;
}

DataType promotedType(std::span<const Operand> operands) {
  std::optional<DataType> withDims, withoutDims, scalars;
  for (const Operand& operand : operands) {
    if (!operand.isTensor()) {
      scalars = meet(scalars, operand.dtype());
    } else if (rankOf(operand.val()->asTensor()) > 0) {
      withDims = meet(withDims, operand.dtype());
    } else {
      withoutDims = meet(withoutDims, operand.dtype());
    }
  }
  std::optional<DataType> tensors = weigh(withDims, withoutDims);
  if (tensors && scalars && isFloatingPoint(*scalars)) {
    scalars = DataType::Float;
  }
  return weigh(tensors, scalars).value_or(DataType::Double);
}

namespace {

// As conversions of elements: a value that does not fit, or NaN, gives the lowest integer.
int64_t truncatedTo64(double value) {
  return value >= -0x1p63 && value < 0x1p63 ? static_cast<int64_t>(value) : INT64_MIN;
}

}  // namespace

Val* scalarAs(Fusion& fusion, Val* val, DataType type) {
  if (info(val->dtype()).category == info(type).category) {
    return val;
  }
  DataType wide = wideType(type);
  if (val->isConst()) {
    const double value = toDouble(val->constant());
    return wide == DataType::Double ? fusion.scalar(value)
           : wide == DataType::Int  ? fusion.scalar(truncatedTo64(value))
                                    : fusion.scalar(value != 0);
  }
  return castOp(wide, val);
}

Val* pointOp(PointOp op, std::span<const Operand> operands) {
  const PointOpInfo& row = info(op);
  invariant(std::ssize(operands) == row.arity, "[{}] takes {} operands, got {}", row.name, row.arity, operands.size());
  std::vector<Val*> given;
  for (const Operand& operand : operands) {
    check(!operand.isMissing(), "[{}] an operand is null, expected a tensor or a scalar", row.name);
    if (operand.val() != nullptr) {
      given.push_back(operand.val());
    }
  }
  const bool anyTensor = std::ranges::any_of(operands, &Operand::isTensor);
  Fusion& fusion = commonFusion(row.name, given);

  const int64_t firstTyped = op == PointOp::Where ? 1 : 0;
  if (op == PointOp::Where) {
    check(operands[0].dtype() == DataType::Bool,
          "[where] the condition is {}, expected Bool; compare it, as in ne(x, 0)", name(operands[0].dtype()));
  }
  DataType type = promotedType(operands.subspan(firstTyped));
  if (type == DataType::Bool && boolForm(op) != op) {
    return pointOp(boolForm(op), operands);
  }
  if (isRounding(op) && isIntegral(type)) {
    return set(given[0]);  // an integer is its own rounding; Float could not hold it
  }
  type = computeType(row, type, !anyTensor);

  std::vector<Val*> converted;
  for (int64_t k = 0; k < std::ssize(operands); k++) {
    Val* val = operands[k].in(fusion);
    DataType wanted = k < firstTyped ? DataType::Bool : type;
    converted.push_back(val->isTensor() ? maybeCastOp(wanted, val->asTensor()) : scalarAs(fusion, val, wanted));
  }
  if (!anyTensor) {
    return scalarPoint(fusion, op, converted, type);
  }

  int64_t rank = 0;
  for (const Val* val : converted) {
    rank = val->isTensor() ? std::max(rank, rankOf(val->asTensor())) : rank;
  }
  std::vector<TensorView*> tensors;
  for (Val*& val : converted) {
    if (val->isTensor()) {
      tensors.push_back(withLeadingDims(val->asTensor(), rank));
      val = tensors.back();
    }
  }
  return fusion.addOp(ExprKind::Point, converted, row.givesBool ? DataType::Bool : type,
                      stretchedDims(row.name, tensors), {.point = op});
}

}  // namespace meshfuse
