#include "codegen/llvm/vector_math.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <ranges>
#include <utility>

#include "base/ranges.h"

namespace meshfuse {

using namespace llvm;
using Group = VectorMath::Group;

namespace {

// Adding 1.5 * 2^23 rounds a float below 2^22 to an integer and leaves it in the low bits.
constexpr double kRounder = 12582912.0;
constexpr int64_t kRounderBits = 0x4b400000;
constexpr double kLog2e = 1.44269504088896341;
constexpr double kLn2 = 0.69314718055994531;
// ln2 in two parts: an integer below 2^8 times the first is exact.
constexpr double kLn2High = 0.693145751953125;
constexpr double kLn2Low = 1.42860682030941723212e-6;

// exp(r) = 1 + r + r^2 (kPowerSecond + r kPowerThird) within 2e-9 for |r| <= ln2/32
constexpr double kPowerSecond = 0.500015974;
constexpr double kPowerThird = 0.166666672;
float rootOfTwo(int64_t sixteenths) { return static_cast<float>(std::exp2(static_cast<double>(sixteenths) / 16)); }

Type* integerType(Type* floats) { return floats->getWithNewType(Type::getInt32Ty(floats->getContext())); }

Constant* integer(Type* floats, int64_t value) { return ConstantInt::get(integerType(floats), value, true); }

// f of the first values of all groups, of the second ones, ...
template <class F, class... Groups>
Group each(F f, const Group& x, const Groups&... more) {
  return mapped<Value*>(indices(x), [&](int64_t i) { return f(x[i], more[i]...); });
}

bool isMachineVector(Type* type) {
  auto* vector = dyn_cast<FixedVectorType>(type);
  return vector != nullptr && vector->getNumElements() == 16;
}

}  // namespace

VectorMath::VectorMath(IRBuilderBase& builder, const CpuTarget& target)
    : b_(builder), fma_(target.has("fma")), avx512_(target.has("avx512f") && target.vectorBytes == 64) {}

bool VectorMath::scalesByInstruction(const Group& x) const { return avx512_ && isMachineVector(x[0]->getType()); }

Group VectorMath::spread(const Group& like, double value) { return Group(like.size(), number(like, value)); }

Value* VectorMath::number(const Group& like, double value) {
  return ConstantFP::get(like[0]->getType(), static_cast<double>(static_cast<float>(value)));
}

template <class Y, class Z>
Group VectorMath::multiplyAdd(const Group& x, const Y& y, const Z& z) {
  // The instruction overwrites the second of the operands: most often x is used here last, and nothing has to be copied.
  auto fused = [&](Value* u, Value* v, Value* w) -> Value* {
    return fma_ ? b_.CreateIntrinsic(Intrinsic::fma, {u->getType()}, {v, u, w}) : b_.CreateFAdd(b_.CreateFMul(u, v), w);
  };
  return each(fused, x, spread(x, y), spread(x, z));
}

Group VectorMath::subtract(const Group& x, double y) {
  return each([&](Value* v) { return b_.CreateFSub(v, number(x, y)); }, x);
}

Group VectorMath::negated(const Group& x) {
  return each([&](Value* v) { return b_.CreateFNeg(v); }, x);
}

Group VectorMath::plus(const Group& x, const Group& y) {
  return each([&](Value* u, Value* v) { return b_.CreateFAdd(u, v); }, x, y);
}

Group VectorMath::times(const Group& x, const Group& y) {
  return each([&](Value* u, Value* v) { return b_.CreateFMul(u, v); }, x, y);
}

Group VectorMath::polynomial(const Group& x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.end() - 2;
  Group sum = multiplyAdd(x, c[1], c[0]);
  while (c != coefficients.begin()) {
    sum = multiplyAdd(sum, x, *--c);
  }
  return sum;
}

Group VectorMath::atLeast(const Group& x, double low) {
  Value* l = number(x, low);
  return each([&](Value* v) { return b_.CreateSelect(b_.CreateFCmpOLT(v, l), l, v); }, x);
}

Group VectorMath::atMost(const Group& x, double high) {
  Value* h = number(x, high);
  return each([&](Value* v) { return b_.CreateSelect(b_.CreateFCmpOGT(v, h), h, v); }, x);
}

Group VectorMath::absolute(const Group& x) {
  return each([&](Value* v) { return b_.CreateUnaryIntrinsic(Intrinsic::fabs, v); }, x);
}

Group VectorMath::withSignOf(const Group& magnitude, const Group& x) {
  return each([&](Value* m, Value* s) { return b_.CreateBinaryIntrinsic(Intrinsic::copysign, m, s); }, magnitude, x);
}

Group VectorMath::selectBelow(const Group& x, double limit, const Group& below, const Group& above) {
  auto select = [&](Value* v, Value* b, Value* a) {
    return b_.CreateSelect(b_.CreateFCmpOLT(v, number(x, limit)), b, a);
  };
  return each(select, x, below, above);
}

// An estimate of 14 bits and one step of Newton's method take a quarter of a division's time.
Group VectorMath::reciprocal(const Group& x) {
  Type* type = x[0]->getType();
  if (!scalesByInstruction(x)) {
    return each([&](Value* v) { return b_.CreateFDiv(number(x, 1), v); }, x);
  }
  auto estimate = [&](Value* v) {
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_rcp14_ps_512, {},
                              {v, Constant::getNullValue(type), b_.getInt16(0xffff)});
  };
  Group r = each(estimate, x);
  Group error = multiplyAdd(negated(x), r, 1);
  return multiplyAdd(error, r, r);
}

// p * 2^n; `shifted` is n + kRounder.
Group VectorMath::scale(const Group& p, const Group& n, const Group& shifted) {
  Type* type = p[0]->getType();
  if (scalesByInstruction(p)) {
    auto scalef = [&](Value* m, Value* e) {
      return b_.CreateIntrinsic(Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                                {m, e, Constant::getNullValue(type), b_.getInt16(0xffff), b_.getInt32(4)});
    };
    return each(scalef, p, n);
  }
  // 2^n in two factors, both normal numbers, so that overflow and subnormal results round once.
  auto scaled = [&](Value* m, Value* s) {
    Value* exponent = b_.CreateSub(b_.CreateBitCast(s, integerType(type)), integer(type, kRounderBits));
    Value* half = b_.CreateAShr(exponent, integer(type, 1));
    auto power = [&](Value* e) {
      return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(e, integer(type, 127)), integer(type, 23)), type);
    };
    return b_.CreateFMul(b_.CreateFMul(m, power(half)), power(b_.CreateSub(exponent, half)));
  };
  return each(scaled, p, shifted);
}

// p, but 0 where x < limit: scaling that into the subnormal numbers would take a processor a hundred times as long.
Group VectorMath::zeroBelow(const Group& x, double limit, const Group& p) {
  auto select = [&](Value* v, Value* y) {
    return b_.CreateSelect(b_.CreateFCmpUGE(v, number(x, limit)), y, number(x, 0));
  };
  return each(select, x, p);
}

// A table of the powers of 2^(1/16) and a polynomial of degree 3 take fewer multiplications than a polynomial of degree 6, and a shorter
// chain of them. The processor selects 16 floats by the low four bits of 16 integers, and its scaling rounds the exponent down.
VectorMath::Power VectorMath::power(const Group& x) {
  const bool byTable = scalesByInstruction(x);
  const double rounder = byTable ? kRounder / 16 : kRounder;
  Group shifted = multiplyAdd(x, kLog2e, rounder);
  Group n = subtract(shifted, rounder);
  Group r = multiplyAdd(n, -kLn2Low, multiplyAdd(n, -kLn2High, x));
  if (!byTable) {
    return {polynomial(r, {1, 1, 0.499999911, 0.166664153, 0.0416682586, 0.00837522931, 0.00138363254}), n, shifted};
  }
  Group q = times(r, polynomial(r, {1, kPowerSecond, kPowerThird}));
  Group root = rootsOfTwo(shifted);
  return {multiplyAdd(q, root, root), n, shifted};
}

Group VectorMath::rootsOfTwo(const Group& shifted) {
  Type* type = shifted[0]->getType();
  const auto roots = mapped<Constant*>(std::views::iota(0, 16),
                                       [&](int64_t k) { return ConstantFP::get(type->getScalarType(), rootOfTwo(k)); });
  Constant* table = ConstantVector::get(roots);
  auto select = [&](Value* s) {
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_permvar_sf_512, {},
                              {table, b_.CreateBitCast(s, integerType(type))});
  };
  return each(select, shifted);
}

Group VectorMath::exp(const Group& argument) {
  Group x = atMost(argument, 89);
  if (!scalesByInstruction(x)) {
    x = atLeast(x, -104);
  }
  const Power e = power(x);
  return scale(zeroBelow(argument, -104, e.p), e.n, e.shifted);
}

Group VectorMath::coarseExp(const Group& x, double s) {
  Group shifted = multiplyAdd(x, kLog2e * s, kRounder);
  Group n = subtract(shifted, kRounder);
  Group r = multiplyAdd(n, -kLn2 / s, x);
  return scale(polynomial(r, {1.00000012, 0.999999702 * s, 0.499988735 * s * s, 0.166675925 * s * s * s,
                              0.0419178605 * s * s * s * s, 0.00829729717 * s * s * s * s * s}),
               n, shifted);
}

Group VectorMath::exp2(const Group& argument) {
  Group x = atMost(atLeast(argument, -152), 129);
  Group shifted = plus(x, spread(x, kRounder));
  Group n = subtract(shifted, kRounder);
  Group f = each([&](Value* a, Value* b) { return b_.CreateFSub(a, b); }, x, n);
  Group p = polynomial(f, {1, 0.693147182, 0.240226477, 0.0555033088, 0.00961844344, 0.00133995211, 0.00015352841});
  return scale(zeroBelow(argument, -152, p), n, shifted);
}

Group VectorMath::log(const Group& x) {
  Type* type = x[0]->getType();
  Group e;
  Group f;
  for (Value* v : x) {
    Value* tiny = b_.CreateFCmpOLT(v, number(x, 0x1p-126));
    Value* y = b_.CreateSelect(tiny, b_.CreateFMul(v, number(x, 0x1p23)), v);
    Value* bias = b_.CreateSelect(tiny, number(x, -23), number(x, 0));
    // Splits at sqrt(1/2), so that f is in [sqrt(1/2) - 1, sqrt(2) - 1].
    Value* bits = b_.CreateBitCast(y, integerType(type));
    Value* k = b_.CreateAShr(b_.CreateSub(bits, integer(type, 0x3f3504f3)), integer(type, 23));
    Value* mantissa = b_.CreateSub(bits, b_.CreateShl(k, integer(type, 23)));
    f.push_back(b_.CreateFSub(b_.CreateBitCast(mantissa, type), number(x, 1)));
    e.push_back(b_.CreateFAdd(b_.CreateSIToFP(k, type), bias));
  }
  Group p = polynomial(f, {0.333333135, -0.250000089, 0.200021192, -0.166679963, 0.142195523, -0.124055892, 0.11888162,
                           -0.116756521, 0.067466408});
  Group square = times(f, f);
  Group tail = multiplyAdd(e, -0.00021219444005469057, times(times(square, f), p));
  tail = multiplyAdd(square, -0.5, tail);
  Group result = multiplyAdd(e, 0.693359375, plus(f, tail));
  // Infinity and NaN give themselves, 0 gives -infinity, the negative numbers NaN.
  auto ofSpecial = [&](Value* v, Value* r) {
    r = b_.CreateSelect(b_.CreateFCmpOLT(v, ConstantFP::getInfinity(type)), r, v);
    r = b_.CreateSelect(b_.CreateFCmpOEQ(v, number(x, 0)), ConstantFP::getInfinity(type, true), r);
    return b_.CreateSelect(b_.CreateFCmpOLT(v, number(x, 0)), ConstantFP::getNaN(type), r);
  };
  return each(ofSpecial, x, result);
}

Group VectorMath::tanh(const Group& x) {
  Group a = atMost(absolute(x), 20);
  Group shifted = multiplyAdd(a, 2 * kLog2e, kRounder);
  Group n = subtract(shifted, kRounder);
  Group r = multiplyAdd(n, -kLn2 / 2, a);
  // (exp(2r) - 1) / 2, then (exp(2x) - 1) / 2 = h: tanh = h / (h + 1)
  Group p = polynomial(r, {2 * 0.49999994, 4 * 0.166665182, 8 * 0.0416684225, 16 * 0.00836906303, 32 * 0.00138138805});
  Group q = multiplyAdd(times(r, r), p, r);
  // 2^n, 0 <= n < 60: the low bits of `shifted` hold n
  Type* type = x[0]->getType();
  auto power = [&](Value* v) {
    Value* exponent = b_.CreateShl(b_.CreateBitCast(v, integerType(type)), integer(type, 23));
    return b_.CreateBitCast(b_.CreateAdd(exponent, integer(type, 0x3f800000)), type);
  };
  Group t = each(power, shifted);
  Group h = multiplyAdd(t, q, multiplyAdd(t, 0.5, -0.5));
  // The nearest number is 1 from 9.02 on. Without fused multiply-add the quotient may be the number below it, also of infinity.
  auto saturated = [&](Value* v, Value* y) {
    return b_.CreateSelect(b_.CreateFCmpOGT(v, number(x, 9.02)), number(x, 1), y);
  };
  return withSignOf(each(saturated, a, times(h, reciprocal(plus(h, spread(x, 1))))), x);
}

Group VectorMath::erf(const Group& x) {
  Group a = absolute(x);
  Group square = times(x, x);
  Group q = polynomial(square, {0.128379151, -0.37612462, 0.112814665, -0.0267533343, 0.0049731168, -0.000588677358});
  Group small = multiplyAdd(q, x, x);
  Group t = atMost(a, 4);
  Group r = polynomial(
      t, {-0.12863708, -0.635198057, -0.106159031, 0.0236945506, -0.00361033413, 0.000314856094, -1.04329019e-05});
  // R begins with -1.1286: the 1 is taken apart, so that rounding it costs nothing
  Group e = coarseExp(multiplyAdd(r, t, negated(t)), 1);
  Group large = each([&](Value* v) { return b_.CreateFSub(number(x, 1), v); }, e);
  return selectBelow(a, 0.95, small, withSignOf(large, x));
}

Group VectorMath::sigmoid(const Group& x) {
  Group a = atLeast(negated(absolute(x)), -104);
  const Power power = this->power(a);
  Group e = scale(power.p, power.n, power.shifted);
  Group r = reciprocal(plus(e, spread(x, 1)));
  return selectBelow(x, 0, times(e, r), r);
}

// 1 / (1 + e), e = exp(-x), with e between 2^-126 and 2^126 for x from kLeastCoarse on. In `shifted`, moved up by 19 digits, an exponent lies
// above the number of a root of two; adding the root without that number gives the power of two.
Group VectorMath::coarseSigmoid(const Group& x) {
  Type* type = x[0]->getType();
  Group a = atMost(x, 87);
  Group shifted = multiplyAdd(a, -kLog2e, kRounder / 16);
  Group s = multiplyAdd(subtract(shifted, kRounder / 16), kLn2, a);  // e = 2^n exp(-s)
  Group p = polynomial(s, {1, -1, kPowerSecond, -kPowerThird});
  const auto roots = mapped<Constant*>(std::views::iota(0, 16), [&](int64_t k) -> Constant* {
    return integer(type->getScalarType(), std::bit_cast<int32_t>(rootOfTwo(k)) - (k << 19));
  });
  Constant* table = ConstantVector::get(roots);
  auto power = [&](Value* v) {
    Value* n = b_.CreateBitCast(v, integerType(type));
    Value* root = b_.CreateIntrinsic(Intrinsic::x86_avx512_permvar_si_512, {}, {table, n});
    return b_.CreateBitCast(b_.CreateAdd(root, b_.CreateShl(n, integer(type, 19))), type);
  };
  return reciprocal(multiplyAdd(p, each(power, shifted), 1));
}

Group VectorMath::sine(const Group& x, int64_t quarters) {
  // pi/2 in three parts. An integer below 2^17 times the first leaves a difference to x that is exact.
  constexpr double kHalfPi[] = {1.57079637, -4.37113883e-08, -1.71512489e-15};
  const Group a = absolute(x);
  const Group shifted = multiplyAdd(a, 0.636619772367581343, kRounder);
  const Group n = subtract(shifted, kRounder);
  Group r = a;
  for (double part : kHalfPi) {
    r = multiplyAdd(n, -part, r);
  }
  const Group square = times(r, r);
  const Group odd = multiplyAdd(times(r, square),
                                polynomial(square, {-0.166666672, 0.00833332911, -0.000198391877, 2.7169167e-06}), r);
  const Group even = polynomial(square, {1, -0.5, 0.0416666195, -0.00138866017, 2.43751438e-05});
  // The low bits of `shifted` hold n: the lowest chooses the polynomial, the next one the sign.
  Type* type = x[0]->getType();
  auto ofQuarter = [&](Value* v, Value* s, Value* o, Value* e) {
    Value* quarter = b_.CreateAdd(b_.CreateBitCast(s, integerType(type)), integer(type, quarters));
    Value* isOdd = b_.CreateICmpEQ(b_.CreateAnd(quarter, integer(type, 1)), integer(type, 0));
    Value* sign = b_.CreateShl(b_.CreateLShr(quarter, integer(type, 1)), integer(type, 31));
    if (quarters == 0) {
      Value* own = b_.CreateAnd(b_.CreateBitCast(v, integerType(type)), integer(type, INT32_MIN));
      sign = b_.CreateXor(sign, own);
    }
    return b_.CreateBitCast(b_.CreateXor(b_.CreateBitCast(b_.CreateSelect(isOdd, o, e), integerType(type)), sign),
                            type);
  };
  return each(ofQuarter, x, shifted, odd, even);
}

Value* VectorMath::maximum(Value* a, Value* b) { return better(PointOp::Maximum, a, b); }

Value* VectorMath::minimum(Value* a, Value* b) { return better(PointOp::Minimum, a, b); }

// The machine's minimum and maximum give the second operand where one is NaN, so only a NaN in the first is handled here. A number that is
// written in the program comes first: it is none.
Value* VectorMath::better(PointOp op, Value* a, Value* b) {
  const auto isNumber = [](Value* v) {
    const auto* vector = dyn_cast<Constant>(v);
    const auto* number = dyn_cast_or_null<ConstantFP>(
        vector != nullptr && v->getType()->isVectorTy() ? vector->getSplatValue() : vector);
    return number != nullptr && !number->isNaN();
  };
  if (isNumber(b)) {
    std::swap(a, b);
  }
  Value* isBetter = op == PointOp::Maximum ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b);
  Value* better = b_.CreateSelect(isBetter, a, b);
  return isNumber(a) ? better : orNaN(better, a);
}

Value* VectorMath::orNaN(Value* better, Value* a) {
  if (!avx512_ || !isMachineVector(a->getType()) || !a->getType()->getScalarType()->isFloatTy()) {
    return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, better);
  }
  // One instruction: by the class of `a`, quiet and signalling NaN (the lowest two digits) give NaN, all others `better`.
  Constant* byClass = ConstantInt::get(integerType(a->getType()), 0x22);
  return b_.CreateIntrinsic(Intrinsic::x86_avx512_mask_fixupimm_ps_512, {},
                            {better, a, byClass, b_.getInt32(0), b_.getInt16(0xffff), b_.getInt32(4)});
}

}  // namespace meshfuse
