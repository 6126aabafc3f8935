// The operands of a builder, and their promotion to a common type.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/exact.h"
#include "digits/int_expr.h"
#include "ir/fusion.h"
#include "ir/point_op.h"
#include "ir/tensor_view.h"
#include "ir/val.h"

namespace meshfuse {

// A tensor, a scalar of the fusion, or a C++ number (integers are Int, floating numbers Double). Implicit on purpose: it
// is used only in parameter lists of builders. UserError for an integer that does not fit in 64 bits with a sign.
class Operand {
 public:
  Operand(Val* val) : val_(val), missing_(val == nullptr) {}  // NOLINT
  Operand(const IntExpr& extent) : expr_(extent) {}           // NOLINT
  template <class T>
  requires std::same_as<T, bool> Operand(T value) : number_(value) {}  // NOLINT
  template <std::floating_point T>
  Operand(T value) : number_(static_cast<double>(value)) {}  // NOLINT
  template <std::integral T>
  requires(!std::same_as<T, bool>) Operand(T value) : expr_(exactInt(value)) {}  // NOLINT

  bool isMissing() const { return missing_; }  // a null pointer was given
  bool isTensor() const { return val_ != nullptr && val_->isTensor(); }
  // The Val, created in `fusion` if this is a number.
  Val* in(Fusion& fusion) const;
  // The given Val; nullptr for a number.
  Val* val() const { return val_; }
  DataType dtype() const;

 private:
  Val* val_ = nullptr;
  bool missing_ = false;
  IntExpr expr_;
  ScalarConst number_;
};

// The value of a constant scalar; true is 1.
[[nodiscard]] double toDouble(const ScalarConst& value);

template <class T>
concept ValPointer = std::is_pointer_v<T> && std::derived_from<std::remove_cv_t<std::remove_pointer_t<T>>, Val>;
template <class T>
concept ScalarNumber = std::is_arithmetic_v<T> || std::same_as<T, IntExpr>;

// Operands; at least one belongs to a fusion.
template <class... T>
concept Operands = ((ValPointer<T> || ScalarNumber<T> || std::same_as<T, Operand>)&&...) && (ValPointer<T> || ...);

// The second of two operands.
template <class B, class A>
concept OperandWith = Operands<A, B>;

// TensorView* if an operand is one, else Val*.
template <class... T>
using PointResult = std::conditional_t<(std::same_as<T, TensorView*> || ...), TensorView*, Val*>;

// Extents, sizes or widths: C++ integers, Int scalars, or expressions, as in reshape(x, {2, -1}) and full({n, 4}, ..). Implicit on
// purpose. UserError if a scalar is null, a tensor, or not Int.
class IntList {
 public:
  IntList() = default;
  IntList(const std::vector<int64_t>& items) : items_(items.begin(), items.end()) {}  // NOLINT
  IntList(const std::vector<Val*>& items);                                            // NOLINT
  IntList(std::vector<IntExpr> items) : items_(std::move(items)) {}                   // NOLINT
  template <std::integral T>
  IntList(std::initializer_list<T> items) {  // NOLINT
    for (const T item : items) {
      items_.emplace_back(exactInt(item));
    }
  }
  IntList(std::initializer_list<Val*> items) : IntList(std::vector<Val*>(items)) {}  // NOLINT
  IntList(std::initializer_list<IntExpr> items) : items_(items) {}                   // NOLINT
  const std::vector<IntExpr>& items() const { return items_; }
  size_t size() const { return items_.size(); }
  // The fusion of the given scalars, else that of the guard.
  Fusion& fusion() const;

 private:
  std::vector<IntExpr> items_;
  Fusion* fusion_ = nullptr;
};

// The common type of two types: the type of the higher category (Bool < integer < floating); within a category the larger type, except: a
// signed and an unsigned type of integers give the narrowest signed type that holds both (Byte and Char give Short, UInt16 and Short give
// Int32), and the two 16-bit floating types give Float.
[[nodiscard]] DataType promoteTypes(DataType a, DataType b);

// The common type of operands, before an op's own rules. As in PyTorch the categories are Bool, integer, floating. A 0-d tensor
// changes the type only if its category is higher than that of all tensors with dims, and a scalar only if its category is higher than
// that of all tensors. A Double scalar with integer tensors gives Float.
[[nodiscard]] DataType promotedType(std::span<const Operand> operands);

// A scalar in the category of `type`: Double, Int or Bool. A floating scalar stays Double; it is rounded to the type of a tensor only where
// an op combines it with an element. Constants are converted here, other scalars by a Cast.
[[nodiscard]] Val* scalarAs(Fusion& fusion, Val* val, DataType type);

// One op of the table point_op.h on operands of any accepted type: promotes, converts, gives operands with fewer dims leading broadcast
// dims and stretches broadcast dims. Operands of 16-bit floating types are computed in Float, and the result is Float. UserError
// `[op] ...` if types or shapes do not fit or operands are of different fusions.
Val* pointOp(PointOp op, std::span<const Operand> operands);

template <class... T>
requires Operands<T...> PointResult<T...> point(PointOp op, T... operands) {
  const Operand list[] = {Operand(operands)...};
  return static_cast<PointResult<T...>>(pointOp(op, list));
}

}  // namespace meshfuse
