#include "ir/val.h"

#include <cmath>

#include "base/error.h"
#include "ir/tensor_view.h"

namespace meshfuse {

namespace {

// The shortest text that reads back as the same number, never like an integer's.
std::string doubleText(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

}  // namespace

TensorView* Val::asTensor() {
  if (!isTensor_) [[unlikely]] {  // the text is made where it is needed: this is called everywhere
    throwInternalError(fmt::format("[ir] {} is a scalar, not a tensor", toString()));
  }
  return static_cast<TensorView*>(this);
}

const TensorView* Val::asTensor() const { return const_cast<Val*>(this)->asTensor(); }

bool Val::isConst() const { return !std::holds_alternative<std::monostate>(constant()); }

ScalarConst Val::constant() const {
  const bool isConstInt = !isTensor_ && dtype_ == DataType::Int && intExpr_.isConst();
  return isConstInt ? intExpr_.constValue() : constant_;
}

const IntExpr& Val::intExpr() const {
  invariant(!isTensor_ && dtype_ == DataType::Int, "[ir] {} is no Int scalar but {}{}", toString(), name(dtype_),
            isTensor_ ? " tensor" : "");
  return intExpr_;
}

std::string Val::toString() const {
  if (isTensor_ || isInput_ || definition_ != nullptr) {
    return fmt::format("{}{}", isTensor_ ? 'T' : 'S', id_);
  }
  if (dtype_ == DataType::Int) {
    return intExpr_.toString();
  }
  if (const double* value = std::get_if<double>(&constant_)) {
    return doubleText(*value);
  }
  const bool* value = std::get_if<bool>(&constant_);
  return value == nullptr ? fmt::format("S{}", id_) : *value ? "true" : "false";
}

}  // namespace meshfuse
