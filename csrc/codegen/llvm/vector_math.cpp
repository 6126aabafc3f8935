#include "codegen/llvm/vector_math.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

namespace meshfuse {

using namespace llvm;

namespace {

// Adding 1.5 * 2^23 rounds a float below 2^22 to an integer and leaves it in the low bits.
constexpr double kRounder = 12582912.0;
constexpr int64_t kRounderBits = 0x4b400000;

Type* integerType(Type* floats) {
  Type* i32 = Type::getInt32Ty(floats->getContext());
  return floats->isVectorTy() ? static_cast<Type*>(VectorType::get(i32, cast<VectorType>(floats)->getElementCount())) : i32;
}

Constant* integer(Type* floats, int64_t value) { return ConstantInt::get(integerType(floats), static_cast<uint64_t>(value), true); }

}  // namespace

VectorMath::VectorMath(IRBuilderBase& builder, const CpuTarget& target)
    : b_(builder), fma_(target.has("fma")), avx512_(target.has("avx512f") && target.vectorBytes == 64) {}

Value* VectorMath::constant(Type* type, double value) { return ConstantFP::get(type, static_cast<double>(static_cast<float>(value))); }

Value* VectorMath::multiplyAdd(Value* x, Value* y, Value* z) {
  if (!fma_) {
    return b_.CreateFAdd(b_.CreateFMul(x, y), z);
  }
  return b_.CreateIntrinsic(Intrinsic::fma, {x->getType()}, {x, y, z});
}

Value* VectorMath::polynomial(Value* x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.end();
  Value* sum = constant(x->getType(), *--c);
  while (c != coefficients.begin()) {
    sum = multiplyAdd(sum, x, constant(x->getType(), *--c));
  }
  return sum;
}

Value* VectorMath::clamp(Value* x, double low, double high) {
  Value* l = constant(x->getType(), low);
  Value* h = constant(x->getType(), high);
  x = b_.CreateSelect(b_.CreateFCmpOLT(x, l), l, x);
  return b_.CreateSelect(b_.CreateFCmpOGT(x, h), h, x);
}

Value* VectorMath::absolute(Value* x) { return b_.CreateUnaryIntrinsic(Intrinsic::fabs, x); }

Value* VectorMath::scale(Value* p, Value* n, Value* shifted) {
  Type* type = p->getType();
  auto* vector = dyn_cast<FixedVectorType>(type);
  if (avx512_ && vector != nullptr && vector->getNumElements() == 16) {
    return b_.CreateIntrinsic(Intrinsic::x86_avx512_mask_scalef_ps_512, {},
                              {p, n, Constant::getNullValue(type), b_.getInt16(0xffff), b_.getInt32(4)});
  }
  // 2^n in two factors, both normal numbers, so that overflow and subnormal results round once.
  Value* exponent = b_.CreateSub(b_.CreateBitCast(shifted, integerType(type)), integer(type, kRounderBits));
  Value* half = b_.CreateAShr(exponent, integer(type, 1));
  auto power = [&](Value* e) { return b_.CreateBitCast(b_.CreateShl(b_.CreateAdd(e, integer(type, 127)), integer(type, 23)), type); };
  return b_.CreateFMul(b_.CreateFMul(p, power(half)), power(b_.CreateSub(exponent, half)));
}

Value* VectorMath::expReduced(Value* r, Value* n, Value* shifted) {
  return scale(polynomial(r, {1, 1, 0.499999911, 0.166664153, 0.0416682586, 0.00837522931, 0.00138363254}), n, shifted);
}

Value* VectorMath::exp(Value* x) {
  Type* type = x->getType();
  x = clamp(x, -104, 89);
  Value* shifted = multiplyAdd(x, constant(type, 1.44269504088896341), constant(type, kRounder));
  Value* n = b_.CreateFSub(shifted, constant(type, kRounder));
  // ln2 in two parts; n times the first is exact
  Value* r = multiplyAdd(n, constant(type, -0.693145751953125), x);
  r = multiplyAdd(n, constant(type, -1.42860682030941723212e-6), r);
  return expReduced(r, n, shifted);
}

Value* VectorMath::exp2(Value* x) {
  Type* type = x->getType();
  x = clamp(x, -152, 129);
  Value* shifted = b_.CreateFAdd(x, constant(type, kRounder));
  Value* n = b_.CreateFSub(shifted, constant(type, kRounder));
  Value* f = b_.CreateFSub(x, n);
  Value* p = polynomial(f, {1, 0.693147182, 0.240226477, 0.0555033088, 0.00961844344, 0.00133995211, 0.00015352841});
  return scale(p, n, shifted);
}

Value* VectorMath::log(Value* x) {
  Type* type = x->getType();
  Value* tiny = b_.CreateFCmpOLT(x, constant(type, 0x1p-126));
  Value* y = b_.CreateSelect(tiny, b_.CreateFMul(x, constant(type, 0x1p23)), x);
  Value* bias = b_.CreateSelect(tiny, constant(type, -23), constant(type, 0));
  // Splits at sqrt(1/2), so that f is in [sqrt(1/2) - 1, sqrt(2) - 1].
  Value* bits = b_.CreateBitCast(y, integerType(type));
  Value* offset = b_.CreateSub(bits, integer(type, 0x3f3504f3));
  Value* k = b_.CreateAShr(offset, integer(type, 23));
  Value* mantissa = b_.CreateSub(bits, b_.CreateShl(k, integer(type, 23)));
  Value* f = b_.CreateFSub(b_.CreateBitCast(mantissa, type), constant(type, 1));
  Value* e = b_.CreateFAdd(b_.CreateSIToFP(k, type), bias);
  Value* p = polynomial(f, {0.333333135, -0.250000089, 0.200021192, -0.166679963, 0.142195523, -0.124055892, 0.11888162,
                            -0.116756521, 0.067466408});
  Value* square = b_.CreateFMul(f, f);
  Value* tail = multiplyAdd(e, constant(type, -0.00021219444005469057), b_.CreateFMul(b_.CreateFMul(square, f), p));
  tail = multiplyAdd(square, constant(type, -0.5), tail);
  Value* result = multiplyAdd(e, constant(type, 0.693359375), b_.CreateFAdd(f, tail));
  // Infinity and NaN give themselves, 0 gives -infinity, the negative numbers NaN.
  Constant* infinity = ConstantFP::getInfinity(type);
  result = b_.CreateSelect(b_.CreateFCmpULT(x, infinity), result, x);
  result = b_.CreateSelect(b_.CreateFCmpOEQ(x, constant(type, 0)), ConstantFP::getInfinity(type, true), result);
  return b_.CreateSelect(b_.CreateFCmpOLT(x, constant(type, 0)), ConstantFP::getNaN(type), result);
}

Value* VectorMath::tanh(Value* x) {
  Type* type = x->getType();
  Value* a = absolute(x);
  Value* square = b_.CreateFMul(x, x);
  Value* p = polynomial(square, {-0.333332628, 0.133308992, -0.0536929667, 0.0204833169, -0.00552863395});
  Value* small = multiplyAdd(b_.CreateFMul(x, square), p, x);
  Value* e = exp(b_.CreateFAdd(a, a));
  Value* quotient = b_.CreateFDiv(constant(type, 2), b_.CreateFAdd(e, constant(type, 1)));
  Value* large = b_.CreateBinaryIntrinsic(Intrinsic::copysign, b_.CreateFSub(constant(type, 1), quotient), x);
  return b_.CreateSelect(b_.CreateFCmpOLT(a, constant(type, 0.65)), small, large);
}

Value* VectorMath::erf(Value* x) {
  Type* type = x->getType();
  Value* a = absolute(x);
  Value* square = b_.CreateFMul(x, x);
  Value* q = polynomial(square, {0.128379166, -0.376126319, 0.112836726, -0.0268581044, 0.00519779697, -0.000810596452, 8.21542271e-05});
  Value* small = multiplyAdd(q, x, x);
  Value* t = b_.CreateSelect(b_.CreateFCmpOGT(a, constant(type, 4)), constant(type, 4), a);
  Value* r = polynomial(t, {-0.12863708, -0.635198057, -0.106159031, 0.0236945506, -0.00361033413, 0.000314856094, -1.04329019e-05});
  // R begins with -1.1286: the 1 is taken apart, so that rounding it costs nothing
  Value* exponent = b_.CreateFSub(b_.CreateFMul(r, t), t);
  Value* large = b_.CreateBinaryIntrinsic(Intrinsic::copysign, b_.CreateFSub(constant(type, 1), exp(exponent)), x);
  return b_.CreateSelect(b_.CreateFCmpOLT(a, constant(type, 0.95)), small, large);
}

Value* VectorMath::sigmoid(Value* x) {
  Type* type = x->getType();
  Value* e = exp(b_.CreateFNeg(absolute(x)));
  Value* above = b_.CreateSelect(b_.CreateFCmpOLT(x, constant(type, 0)), e, constant(type, 1));
  return b_.CreateFDiv(above, b_.CreateFAdd(e, constant(type, 1)));
}

}  // namespace meshfuse
