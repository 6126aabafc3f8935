// Elementwise ops. Operands are tensors, scalars and C++ numbers in any mixture; at least one belongs to a fusion.
//
//   add(x, bias)   x [B, S, E], bias [E]: bias gets leading broadcast dims; broadcast dims (extent 1) stretch
//   mul(x, 0.5)    a number does not raise the type within its category: Float stays Float
//   add(half, half)  computed in Float, and the result is Float until cast
//
// Result: TensorView* if an operand is one, else Val*. Its shape is the common shape of the stretched operands, its type the common
// type of the operands (promotedType in operand.h), or Bool where noted. Ops of floating numbers convert integers to Float, but
// ceil, floor, round and trunc keep them. On Bool tensors add and maximum are "or", mul and minimum "and"; other arithmetic converts
// them to Int.
// UserError `[op] ...`: extents that differ, a type that the op does not accept, operands of different fusions, a null operand.
//
// The table in ir/point_op.h defines what each op computes, also for special values. In this header each op has one line.
#pragma once

#include <initializer_list>
#include <string_view>

#include "ops/builder_call.h"
#include "ops/operand.h"

namespace meshfuse {

// clang-format off: one line a row
// -- unary --------------------------------------------------------------------------------------------------------------
auto abs(ValPointer auto a) { return point(PointOp::Abs, a); }
auto acos(ValPointer auto a) { return point(PointOp::Acos, a); }
auto acosh(ValPointer auto a) { return point(PointOp::Acosh, a); }
auto asin(ValPointer auto a) { return point(PointOp::Asin, a); }
auto asinh(ValPointer auto a) { return point(PointOp::Asinh, a); }
auto atan(ValPointer auto a) { return point(PointOp::Atan, a); }
auto atanh(ValPointer auto a) { return point(PointOp::Atanh, a); }
auto ceil(ValPointer auto a) { return point(PointOp::Ceil, a); }
auto cos(ValPointer auto a) { return point(PointOp::Cos, a); }
auto cosh(ValPointer auto a) { return point(PointOp::Cosh, a); }
auto exp(ValPointer auto a) { return point(PointOp::Exp, a); }
auto exp2(ValPointer auto a) { return point(PointOp::Exp2, a); }
auto expm1(ValPointer auto a) { return point(PointOp::Expm1, a); }  // exp(x) - 1
auto erf(ValPointer auto a) { return point(PointOp::Erf, a); }
auto erfc(ValPointer auto a) { return point(PointOp::Erfc, a); }
auto erfinv(ValPointer auto a) { return point(PointOp::Erfinv, a); }
auto floor(ValPointer auto a) { return point(PointOp::Floor, a); }
auto frac(ValPointer auto a) { return point(PointOp::Frac, a); }      // x - trunc(x)
auto lgamma(ValPointer auto a) { return point(PointOp::Lgamma, a); }  // log |gamma(x)|
auto log(ValPointer auto a) { return point(PointOp::Log, a); }
auto log10(ValPointer auto a) { return point(PointOp::Log10, a); }
auto log1p(ValPointer auto a) { return point(PointOp::Log1p, a); }  // log(1 + x)
auto log2(ValPointer auto a) { return point(PointOp::Log2, a); }
auto neg(ValPointer auto a) { return point(PointOp::Neg, a); }
auto reciprocal(ValPointer auto a) { return point(PointOp::Reciprocal, a); }  // 1 / x
auto round(ValPointer auto a) { return point(PointOp::Round, a); }            // halves to even
auto rsqrt(ValPointer auto a) { return point(PointOp::Rsqrt, a); }            // 1 / sqrt(x)
auto sigmoid(ValPointer auto a) { return point(PointOp::Sigmoid, a); }        // 1 / (1 + exp(-x))
auto sign(ValPointer auto a) { return point(PointOp::Sign, a); }              // -1, 0, 1; of NaN: NaN
auto signbit(ValPointer auto a) { return point(PointOp::Signbit, a); }        // Bool
auto sin(ValPointer auto a) { return point(PointOp::Sin, a); }
auto sinh(ValPointer auto a) { return point(PointOp::Sinh, a); }
auto sqrt(ValPointer auto a) { return point(PointOp::Sqrt, a); }
auto tan(ValPointer auto a) { return point(PointOp::Tan, a); }
auto tanh(ValPointer auto a) { return point(PointOp::Tanh, a); }
auto trunc(ValPointer auto a) { return point(PointOp::Trunc, a); }
auto bitwise_not(ValPointer auto a) { return point(PointOp::BitwiseNot, a); }
auto logical_not(ValPointer auto a) { return point(PointOp::LogicalNot, a); }
auto isfinite(ValPointer auto a) { return point(PointOp::IsFinite, a); }  // Bool
auto isinf(ValPointer auto a) { return point(PointOp::IsInf, a); }        // Bool
auto isnan(ValPointer auto a) { return point(PointOp::IsNan, a); }        // Bool
auto isneginf(ValPointer auto a) { return point(PointOp::IsNegInf, a); }  // Bool
auto isposinf(ValPointer auto a) { return point(PointOp::IsPosInf, a); }  // Bool

// -- binary -------------------------------------------------------------------------------------------------------------
auto add(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Add, a, b); }
auto sub(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Sub, a, b); }
auto mul(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Mul, a, b); }
auto div(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Div, a, b); }    // integers: towards zero
auto fmod(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Fmod, a, b); }  // sign of the dividend
// sign of the divisor
auto remainder(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Remainder, a, b); }
auto mod(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Mod, a, b); }  // integers: C's %
auto pow(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Pow, a, b); }
auto atan2(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Atan2, a, b); }
auto maximum(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Maximum, a, b); }  // NaN if either is
auto minimum(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Minimum, a, b); }  // NaN if either is
auto nextafter(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::NextAfter, a, b); }
auto ceilDiv(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::CeilDiv, a, b); }  // integers, rounded up
auto gcd(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Gcd, a, b); }
// a; a run fails where it is not in [0, b)
auto checked_index(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::CheckedIndex, a, b); }
auto eq(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Eq, a, b); }  // Bool
auto ne(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Ne, a, b); }  // Bool
auto gt(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Gt, a, b); }  // Bool
auto ge(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Ge, a, b); }  // Bool
auto lt(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Lt, a, b); }  // Bool
auto le(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Le, a, b); }  // Bool
auto bitwise_and(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::BitwiseAnd, a, b); }
auto bitwise_or(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::BitwiseOr, a, b); }
auto bitwise_xor(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::BitwiseXor, a, b); }
auto bitwise_left_shift(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Shl, a, b); }
auto bitwise_right_shift(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::Shr, a, b); }
auto logical_and(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::LogicalAnd, a, b); }  // Bool
auto logical_or(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::LogicalOr, a, b); }    // Bool
auto logical_xor(auto a, OperandWith<decltype(a)> auto b) { return point(PointOp::LogicalXor, a, b); }  // Bool

// clang-format on

// -- ternary ------------------------------------------------------------------------------------------------------------
// condition ? a : b, elementwise; UserError unless condition is Bool.
template <class C, class A, class B>
requires Operands<C, A, B>
auto where(C condition, A a, B b) { return point(PointOp::Where, condition, a, b); }
// a * b + c with one rounding.
template <class A, class B, class C>
requires Operands<A, B, C> PointResult<A, B, C> fma(A a, B b, C c) { return point(PointOp::Fma, a, b, c); }

// -- composed of the above ------------------------------------------------------------------------------------------------
// a / b in floating numbers, integers included.
Val* trueDivide(Operand a, Operand b);
template <class A, class B>
requires Operands<A, B> PointResult<A, B> truediv(A a, B b) { return static_cast<PointResult<A, B>>(trueDivide(a, b)); }
// UserError `[op] b is T1 Float[5], a is T0 Float[4]; ..` for the first operand whose extents do not stretch with those of one before it.
struct NamedOperand {
  std::string_view name;
  Operand operand;
};
void checkStretch(std::string_view op, std::initializer_list<NamedOperand> operands);
// a + b * s
template <class A, class B, class S>
requires Operands<A, B, S> PointResult<A, B, S> add_alpha(A a, B b, S s) {
  const BuilderCall call("add_alpha", {a, b, s});
  checkStretch("add_alpha", {{"a", a}, {"b", b}, {"s", s}});
  return add(a, point(PointOp::Mul, b, s));
}
// a - b * s
template <class A, class B, class S>
requires Operands<A, B, S> PointResult<A, B, S> sub_alpha(A a, B b, S s) {
  const BuilderCall call("sub_alpha", {a, b, s});
  checkStretch("sub_alpha", {{"a", a}, {"b", b}, {"s", s}});
  return sub(a, point(PointOp::Mul, b, s));
}
// a + b * c * s
template <class A, class B, class C, class S>
requires Operands<A, B, C, S> PointResult<A, B, C, S> addcmul(A a, B b, C c, S s) {
  const BuilderCall call("addcmul", {a, b, c, s});
  checkStretch("addcmul", {{"a", a}, {"b", b}, {"c", c}, {"s", s}});
  return add(a, mul(mul(b, c), s));
}
// start + weight * (end - start), exact at both ends: for |weight| >= 0.5 it is end - (end - start) * (1 - weight).
TensorView* lerp(TensorView* start, TensorView* end, Operand weight);

}  // namespace meshfuse
