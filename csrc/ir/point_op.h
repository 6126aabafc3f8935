// The elementwise ops: one row each. Builder, printer, parser, reference interpreter, fuzzer and emitters read this table.
//
// An op takes `arity` operands of one element type (Where: a Bool, then two of one type) and gives that type or Bool. 16-bit
// floating types never reach an op: the builders cast to Float first. Semantics are those of C's <cmath> and of PyTorch:
//   Div on integers truncates; Remainder takes the sign of the divisor, Fmod of the dividend; Mod on integers is C's %
//   integer division, Remainder, Mod and CeilDiv by zero give 0 (PyTorch: an error), and the minimum divided by -1 wraps to the minimum
//   (PyTorch: the process ends)
//   Maximum and Minimum propagate NaN, and give either zero of 0 and -0 (PyTorch: the first); Round is to even; Sign of NaN is NaN
//   (PyTorch: 0), of -0 it is 0; integer arithmetic wraps
//   Sigmoid below -88 is a denormal number, and Log1p of the largest number is finite (PyTorch's vector code: 0 and infinity)
//   Shl and Shr (arithmetic) by at least the width, or by a negative amount, give 0 (Shr of a negative: -1)
//   Pow on integers: negative exponents give 0 unless the base is 1 or -1
//   Gcd is not negative (PyTorch: -1 for some pairs with the minimum), but gcd(minimum, 0) and gcd(minimum, minimum) wrap to the minimum
//   CheckedIndex(index, extent) gives the index if 0 <= index < extent. Otherwise it gives 0 in the kernel, and the run fails with a
//   UserError
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse {

enum class PointOp : uint8_t {
  // unary
  Abs,
  Acos,
  Acosh,
  Asin,
  Asinh,
  Atan,
  Atanh,
  Ceil,
  Cos,
  Cosh,
  Exp,
  Exp2,
  Expm1,
  Erf,
  Erfc,
  Erfinv,
  Floor,
  Frac,
  Lgamma,
  Log,
  Log10,
  Log1p,
  Log2,
  Neg,
  Reciprocal,
  Round,
  Rsqrt,
  Sigmoid,
  Sign,
  Signbit,
  Sin,
  Sinh,
  Sqrt,
  Tan,
  Tanh,
  Trunc,
  BitwiseNot,
  LogicalNot,
  IsFinite,
  IsInf,
  IsNan,
  IsNegInf,
  IsPosInf,
  // binary
  Add,
  Sub,
  Mul,
  Div,
  Fmod,
  Remainder,
  Mod,
  Pow,
  Atan2,
  Maximum,
  Minimum,
  NextAfter,
  CeilDiv,
  Gcd,
  CheckedIndex,
  Eq,
  Ne,
  Gt,
  Ge,
  Lt,
  Le,
  BitwiseAnd,
  BitwiseOr,
  BitwiseXor,
  Shl,
  Shr,
  LogicalAnd,
  LogicalOr,
  LogicalXor,
  // ternary
  Where,
  Fma,
};

// Types of operands an op accepts.
enum class OpTypes : uint8_t {
  Any,       // Double, Float, integers, Bool
  Number,    // Double, Float, integers
  Floating,  // Double, Float (builders convert integers to Float)
  Integer,   // integers
  Bits,      // integers, Bool
};

struct PointOpInfo {
  PointOp op;
  std::string_view name;  // as in the text form: `tanh`
  int64_t arity;
  OpTypes types;
  bool givesBool;
  bool scalarCall;  // rare: emitters may call one scalar function per element
};

inline constexpr std::array kPointOps = {
    PointOpInfo{PointOp::Abs, "abs", 1, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Acos, "acos", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Acosh, "acosh", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Asin, "asin", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Asinh, "asinh", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Atan, "atan", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Atanh, "atanh", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Ceil, "ceil", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Cos, "cos", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Cosh, "cosh", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Exp, "exp", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Exp2, "exp2", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Expm1, "expm1", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Erf, "erf", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Erfc, "erfc", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Erfinv, "erfinv", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Floor, "floor", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Frac, "frac", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Lgamma, "lgamma", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Log, "log", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Log10, "log10", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Log1p, "log1p", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Log2, "log2", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Neg, "neg", 1, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Reciprocal, "reciprocal", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Round, "round", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Rsqrt, "rsqrt", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Sigmoid, "sigmoid", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Sign, "sign", 1, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Signbit, "signbit", 1, OpTypes::Number, true, false},
    PointOpInfo{PointOp::Sin, "sin", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Sinh, "sinh", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Sqrt, "sqrt", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Tan, "tan", 1, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Tanh, "tanh", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::Trunc, "trunc", 1, OpTypes::Floating, false, false},
    PointOpInfo{PointOp::BitwiseNot, "bitwise_not", 1, OpTypes::Bits, false, false},
    PointOpInfo{PointOp::LogicalNot, "logical_not", 1, OpTypes::Any, true, false},
    PointOpInfo{PointOp::IsFinite, "isfinite", 1, OpTypes::Floating, true, false},
    PointOpInfo{PointOp::IsInf, "isinf", 1, OpTypes::Floating, true, false},
    PointOpInfo{PointOp::IsNan, "isnan", 1, OpTypes::Floating, true, false},
    PointOpInfo{PointOp::IsNegInf, "isneginf", 1, OpTypes::Floating, true, false},
    PointOpInfo{PointOp::IsPosInf, "isposinf", 1, OpTypes::Floating, true, false},
    PointOpInfo{PointOp::Add, "add", 2, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Sub, "sub", 2, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Mul, "mul", 2, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Div, "div", 2, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Fmod, "fmod", 2, OpTypes::Number, false, true},
    PointOpInfo{PointOp::Remainder, "remainder", 2, OpTypes::Number, false, true},
    PointOpInfo{PointOp::Mod, "mod", 2, OpTypes::Integer, false, false},
    PointOpInfo{PointOp::Pow, "pow", 2, OpTypes::Number, false, true},
    PointOpInfo{PointOp::Atan2, "atan2", 2, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::Maximum, "maximum", 2, OpTypes::Number, false, false},
    PointOpInfo{PointOp::Minimum, "minimum", 2, OpTypes::Number, false, false},
    PointOpInfo{PointOp::NextAfter, "nextafter", 2, OpTypes::Floating, false, true},
    PointOpInfo{PointOp::CeilDiv, "ceilDiv", 2, OpTypes::Integer, false, true},
    PointOpInfo{PointOp::Gcd, "gcd", 2, OpTypes::Integer, false, true},
    PointOpInfo{PointOp::CheckedIndex, "checked_index", 2, OpTypes::Integer, false, false},
    PointOpInfo{PointOp::Eq, "eq", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::Ne, "ne", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::Gt, "gt", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::Ge, "ge", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::Lt, "lt", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::Le, "le", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::BitwiseAnd, "bitwise_and", 2, OpTypes::Bits, false, false},
    PointOpInfo{PointOp::BitwiseOr, "bitwise_or", 2, OpTypes::Bits, false, false},
    PointOpInfo{PointOp::BitwiseXor, "bitwise_xor", 2, OpTypes::Bits, false, false},
    PointOpInfo{PointOp::Shl, "bitwise_left_shift", 2, OpTypes::Integer, false, false},
    PointOpInfo{PointOp::Shr, "bitwise_right_shift", 2, OpTypes::Integer, false, false},
    PointOpInfo{PointOp::LogicalAnd, "logical_and", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::LogicalOr, "logical_or", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::LogicalXor, "logical_xor", 2, OpTypes::Any, true, false},
    PointOpInfo{PointOp::Where, "where", 3, OpTypes::Any, false, false},
    PointOpInfo{PointOp::Fma, "fma", 3, OpTypes::Floating, false, false},
};

constexpr const PointOpInfo& info(PointOp op) { return kPointOps[static_cast<size_t>(op)]; }

// Whether an op with such operands computes in `t`: never in a 16-bit floating type.
constexpr bool accepts(OpTypes types, DataType t) {
  switch (types) {
    case OpTypes::Any:
      return !isHalfPrecision(t);
    case OpTypes::Number:
      return !isHalfPrecision(t) && t != DataType::Bool;
    case OpTypes::Floating:
      return isFloatingPoint(t) && !isHalfPrecision(t);
    case OpTypes::Integer:
      return isIntegral(t);
    case OpTypes::Bits:
      return !isFloatingPoint(t);
  }
  return false;
}

// The op that combines two elements of a reduction.
constexpr PointOp combineOp(ReduceOp op, DataType t) {
  const bool isBool = t == DataType::Bool;
  switch (op) {
    case ReduceOp::Sum:
      return PointOp::Add;
    case ReduceOp::Prod:
      return PointOp::Mul;
    case ReduceOp::Max:
      return PointOp::Maximum;
    case ReduceOp::Min:
      return PointOp::Minimum;
    case ReduceOp::And:
      return isBool ? PointOp::LogicalAnd : PointOp::BitwiseAnd;
    case ReduceOp::Or:
      return isBool ? PointOp::LogicalOr : PointOp::BitwiseOr;
    case ReduceOp::Xor:
      return isBool ? PointOp::LogicalXor : PointOp::BitwiseXor;
  }
  return PointOp::Add;
}

// True if the op makes the run fail for some operands.
constexpr bool mayRefuse(PointOp op) { return op == PointOp::CheckedIndex; }

static_assert(std::ranges::all_of(kPointOps, [](const PointOpInfo& row) { return &row == &info(row.op); }),
              "rows stand in the order of the enumeration");

[[nodiscard]] constexpr std::optional<PointOp> parsePointOp(std::string_view name) {
  const auto* row = std::ranges::find(kPointOps, name, &PointOpInfo::name);
  return row == kPointOps.end() ? std::nullopt : std::optional(row->op);
}

}  // namespace meshfuse
