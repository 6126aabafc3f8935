// Elementwise ops. Operands are tensors, scalars and C++ numbers in any mixture; at least one belongs to a fusion.
//
//   add(x, bias)   x [B, S, E], bias [E]: bias gets leading broadcast dims; broadcast dims (extent 1) stretch
//   mul(x, 0.5)    a number does not raise the type within its category: Float stays Float
//   add(half, half)  computed in Float, and the result is Float until cast
//
// Result: TensorView* if an operand is one, else Val*. Its shape is the common shape of the stretched operands, its type the common
// type of the operands (promotedType in operand.h), or Bool where noted. Ops of floating numbers convert integers to Float. On
// Bool tensors add and maximum are "or", mul and minimum "and"; other arithmetic converts them to Int.
// UserError `[op] ...`: extents that differ, a type that the op does not accept, operands of different fusions, a null operand.
//
// The table in ir/point_op.h defines what each op computes, also for special values. In this header each op has one line.
#pragma once

#include "ops/operand.h"

namespace meshfuse {

// clang-format off: one line a row
// -- unary --------------------------------------------------------------------------------------------------------------
template <class A>
requires Operands<A> ResultOf<A> abs(A a) { return point(PointOp::Abs, a); }
template <class A>
requires Operands<A> ResultOf<A> acos(A a) { return point(PointOp::Acos, a); }
template <class A>
requires Operands<A> ResultOf<A> acosh(A a) { return point(PointOp::Acosh, a); }
template <class A>
requires Operands<A> ResultOf<A> asin(A a) { return point(PointOp::Asin, a); }
template <class A>
requires Operands<A> ResultOf<A> asinh(A a) { return point(PointOp::Asinh, a); }
template <class A>
requires Operands<A> ResultOf<A> atan(A a) { return point(PointOp::Atan, a); }
template <class A>
requires Operands<A> ResultOf<A> atanh(A a) { return point(PointOp::Atanh, a); }
template <class A>
requires Operands<A> ResultOf<A> ceil(A a) { return point(PointOp::Ceil, a); }
template <class A>
requires Operands<A> ResultOf<A> cos(A a) { return point(PointOp::Cos, a); }
template <class A>
requires Operands<A> ResultOf<A> cosh(A a) { return point(PointOp::Cosh, a); }
template <class A>
requires Operands<A> ResultOf<A> exp(A a) { return point(PointOp::Exp, a); }
template <class A>
requires Operands<A> ResultOf<A> exp2(A a) { return point(PointOp::Exp2, a); }
template <class A>
requires Operands<A> ResultOf<A> expm1(A a) { return point(PointOp::Expm1, a); }  // exp(x) - 1
template <class A>
requires Operands<A> ResultOf<A> erf(A a) { return point(PointOp::Erf, a); }
template <class A>
requires Operands<A> ResultOf<A> erfc(A a) { return point(PointOp::Erfc, a); }
template <class A>
requires Operands<A> ResultOf<A> erfinv(A a) { return point(PointOp::Erfinv, a); }
template <class A>
requires Operands<A> ResultOf<A> floor(A a) { return point(PointOp::Floor, a); }
template <class A>
requires Operands<A> ResultOf<A> frac(A a) { return point(PointOp::Frac, a); }  // x - trunc(x)
template <class A>
requires Operands<A> ResultOf<A> lgamma(A a) { return point(PointOp::Lgamma, a); }  // log |gamma(x)|
template <class A>
requires Operands<A> ResultOf<A> log(A a) { return point(PointOp::Log, a); }
template <class A>
requires Operands<A> ResultOf<A> log10(A a) { return point(PointOp::Log10, a); }
template <class A>
requires Operands<A> ResultOf<A> log1p(A a) { return point(PointOp::Log1p, a); }  // log(1 + x)
template <class A>
requires Operands<A> ResultOf<A> log2(A a) { return point(PointOp::Log2, a); }
template <class A>
requires Operands<A> ResultOf<A> neg(A a) { return point(PointOp::Neg, a); }
template <class A>
requires Operands<A> ResultOf<A> reciprocal(A a) { return point(PointOp::Reciprocal, a); }  // 1 / x
template <class A>
requires Operands<A> ResultOf<A> round(A a) { return point(PointOp::Round, a); }  // halves to even
template <class A>
requires Operands<A> ResultOf<A> rsqrt(A a) { return point(PointOp::Rsqrt, a); }  // 1 / sqrt(x)
template <class A>
requires Operands<A> ResultOf<A> sigmoid(A a) { return point(PointOp::Sigmoid, a); }  // 1 / (1 + exp(-x))
template <class A>
requires Operands<A> ResultOf<A> sign(A a) { return point(PointOp::Sign, a); }  // -1, 0, 1; of NaN: NaN
template <class A>
requires Operands<A> ResultOf<A> signbit(A a) { return point(PointOp::Signbit, a); }  // Bool
template <class A>
requires Operands<A> ResultOf<A> sin(A a) { return point(PointOp::Sin, a); }
template <class A>
requires Operands<A> ResultOf<A> sinh(A a) { return point(PointOp::Sinh, a); }
template <class A>
requires Operands<A> ResultOf<A> sqrt(A a) { return point(PointOp::Sqrt, a); }
template <class A>
requires Operands<A> ResultOf<A> tan(A a) { return point(PointOp::Tan, a); }
template <class A>
requires Operands<A> ResultOf<A> tanh(A a) { return point(PointOp::Tanh, a); }
template <class A>
requires Operands<A> ResultOf<A> trunc(A a) { return point(PointOp::Trunc, a); }
template <class A>
requires Operands<A> ResultOf<A> bitwise_not(A a) { return point(PointOp::BitwiseNot, a); }
template <class A>
requires Operands<A> ResultOf<A> logical_not(A a) { return point(PointOp::LogicalNot, a); }
template <class A>
requires Operands<A> ResultOf<A> isfinite(A a) { return point(PointOp::IsFinite, a); }  // Bool
template <class A>
requires Operands<A> ResultOf<A> isinf(A a) { return point(PointOp::IsInf, a); }  // Bool
template <class A>
requires Operands<A> ResultOf<A> isnan(A a) { return point(PointOp::IsNan, a); }  // Bool
template <class A>
requires Operands<A> ResultOf<A> isneginf(A a) { return point(PointOp::IsNegInf, a); }  // Bool
template <class A>
requires Operands<A> ResultOf<A> isposinf(A a) { return point(PointOp::IsPosInf, a); }  // Bool

// -- binary -------------------------------------------------------------------------------------------------------------
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> add(A a, B b) { return point(PointOp::Add, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> sub(A a, B b) { return point(PointOp::Sub, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> mul(A a, B b) { return point(PointOp::Mul, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> div(A a, B b) { return point(PointOp::Div, a, b); }  // integers: towards zero
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> fmod(A a, B b) { return point(PointOp::Fmod, a, b); }  // sign of the dividend
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> remainder(A a, B b) {
  return point(PointOp::Remainder, a, b);
}  // sign of the divisor
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> mod(A a, B b) { return point(PointOp::Mod, a, b); }  // integers: C's %
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> pow(A a, B b) { return point(PointOp::Pow, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> atan2(A a, B b) { return point(PointOp::Atan2, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> maximum(A a, B b) { return point(PointOp::Maximum, a, b); }  // NaN if either is
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> minimum(A a, B b) { return point(PointOp::Minimum, a, b); }  // NaN if either is
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> nextafter(A a, B b) { return point(PointOp::NextAfter, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> ceilDiv(A a, B b) {
  return point(PointOp::CeilDiv, a, b);
}  // integers, rounded up
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> gcd(A a, B b) { return point(PointOp::Gcd, a, b); }
template <class A, class B>  // the index; a run fails where it is not in [0, extent)
requires Operands<A, B> ResultOf<A, B> checked_index(A index, B extent) {
  return point(PointOp::CheckedIndex, index, extent);
}
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> eq(A a, B b) { return point(PointOp::Eq, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> ne(A a, B b) { return point(PointOp::Ne, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> gt(A a, B b) { return point(PointOp::Gt, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> ge(A a, B b) { return point(PointOp::Ge, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> lt(A a, B b) { return point(PointOp::Lt, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> le(A a, B b) { return point(PointOp::Le, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> bitwise_and(A a, B b) { return point(PointOp::BitwiseAnd, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> bitwise_or(A a, B b) { return point(PointOp::BitwiseOr, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> bitwise_xor(A a, B b) { return point(PointOp::BitwiseXor, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> bitwise_left_shift(A a, B b) { return point(PointOp::Shl, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> bitwise_right_shift(A a, B b) { return point(PointOp::Shr, a, b); }
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> logical_and(A a, B b) { return point(PointOp::LogicalAnd, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> logical_or(A a, B b) { return point(PointOp::LogicalOr, a, b); }  // Bool
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> logical_xor(A a, B b) { return point(PointOp::LogicalXor, a, b); }  // Bool

// clang-format on

// -- ternary ------------------------------------------------------------------------------------------------------------
// condition ? a : b, elementwise; UserError unless condition is Bool.
template <class C, class A, class B>
requires Operands<C, A, B> ResultOf<C, A, B> where(C condition, A a, B b) {
  return point(PointOp::Where, condition, a, b);
}
// a * b + c with one rounding.
template <class A, class B, class C>
requires Operands<A, B, C> ResultOf<A, B, C> fma(A a, B b, C c) { return point(PointOp::Fma, a, b, c); }

// -- composed of the above ------------------------------------------------------------------------------------------------
// a / b in floating numbers, integers included.
Val* trueDivide(Operand a, Operand b);
template <class A, class B>
requires Operands<A, B> ResultOf<A, B> truediv(A a, B b) { return static_cast<ResultOf<A, B>>(trueDivide(a, b)); }
// a + b * s
template <class A, class B, class S>
requires Operands<A, B, S> ResultOf<A, B, S> add_alpha(A a, B b, S s) { return add(a, point(PointOp::Mul, b, s)); }
// a - b * s
template <class A, class B, class S>
requires Operands<A, B, S> ResultOf<A, B, S> sub_alpha(A a, B b, S s) { return sub(a, point(PointOp::Mul, b, s)); }
// a + b * c * s
template <class A, class B, class C, class S>
requires Operands<A, B, C, S> ResultOf<A, B, C, S> addcmul(A a, B b, C c, S s) { return add(a, mul(mul(b, c), s)); }
// start + weight * (end - start), exact at both ends: for |weight| >= 0.5 it is end - (end - start) * (1 - weight).
TensorView* lerp(TensorView* start, TensorView* end, Operand weight);

}  // namespace meshfuse
