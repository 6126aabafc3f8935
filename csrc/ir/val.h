// Val: a scalar, or (TensorView) a tensor. Owned by its Fusion, known by a stable id.
//
// An Int scalar is an integer expression: a constant, a symbol, or a value computed from symbols. A floating or Bool scalar is a
// constant, a fusion input, or the result of a scalar Expr.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "digits/int_expr.h"
#include "tensor/dtype.h"

namespace meshfuse {

class Fusion;
class Expr;
class TensorView;

using ScalarConst = std::variant<std::monostate, double, int64_t, bool>;  // monostate: not a constant

class Val {
 public:
  virtual ~Val() = default;
  Fusion& fusion() const { return *fusion_; }
  int64_t id() const { return id_; }
  DataType dtype() const { return dtype_; }
  // The Expr that computes this; nullptr for inputs and constants.
  Expr* definition() const { return definition_; }
  bool isTensor() const { return isTensor_; }
  bool isFusionInput() const { return isInput_; }
  bool isFusionOutput() const { return isOutput_; }
  // This as a TensorView; InternalError if it is a scalar.
  TensorView* asTensor();
  const TensorView* asTensor() const;

  // Scalars only.
  bool isConst() const;
  ScalarConst constant() const;    // of Int scalars: of their expression, if constant
  const IntExpr& intExpr() const;  // InternalError unless an Int scalar
  std::string toString() const;    // T3, S2, or the constant

 protected:
  friend class Fusion;
  friend class FusionCloner;
  friend class FusionParser;
  Fusion* fusion_ = nullptr;
  int64_t id_ = 0;
  DataType dtype_ = DataType::Double;
  bool isTensor_ = false;
  bool isInput_ = false;  // of the fusion
  bool isOutput_ = false;
  Expr* definition_ = nullptr;
  ScalarConst constant_;
  IntExpr intExpr_;
};

}  // namespace meshfuse
