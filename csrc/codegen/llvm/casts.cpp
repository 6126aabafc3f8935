// Casts of PointEmitter. To a floating type: one rounding, to nearest even. From floating to integer: C's truncation; what
// does not fit, NaN included, gives the minimum; unsigned types keep the low bits of an Int. Integers wrap. To Bool: not zero. From Bool: 0
// or 1.
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <cmath>

#include "base/ranges.h"
#include "codegen/llvm/point_ops.h"

namespace meshfuse {

using namespace llvm;

namespace {

bool hasSign(DataType t) { return t != DataType::Bool && !isUnsigned(t); }
Type* withElement(Value* like, Type* element) { return like->getType()->getWithNewType(element); }
Constant* bits(Type* type, int64_t value) { return ConstantInt::get(type, value, true); }

}  // namespace

Value* PointEmitter::cast(Value* value, DataType from, DataType to) {
  if (from == to) {
    return value;
  }
  if (isHalfPrecision(from)) {
    return cast(fromHalfPrecision(value, from), DataType::Float, to);
  }
  if (to == DataType::Bool) {
    return isTrue(value);
  }
  if (isHalfPrecision(to)) {
    return toHalfPrecision(value, from, to);
  }
  return isFloatingPoint(to) ? toFloating(value, from, to) : toInteger(value, from, to);
}

Value* PointEmitter::toFloating(Value* value, DataType from, DataType to) {
  Type* type = withElement(value, to == DataType::Double ? b_.getDoubleTy() : b_.getFloatTy());
  if (isFloatingPoint(from)) {
    return b_.CreateFPCast(value, type);
  }
  return hasSign(from) ? b_.CreateSIToFP(value, type) : b_.CreateUIToFP(value, type);
}

Value* PointEmitter::toInteger(Value* value, DataType from, DataType to) {
  Type* type = withElement(value, b_.getIntNTy(bitWidth(to)));
  if (!isFloatingPoint(from)) {
    return hasSign(from) ? b_.CreateSExtOrTrunc(value, type) : b_.CreateZExtOrTrunc(value, type);
  }
  if (isUnsigned(to)) {
    return b_.CreateTrunc(toInteger(value, from, truncationType(to)), type);
  }
  double limit = std::ldexp(1.0, bitWidth(to) - 1);
  Constant* low = ConstantFP::get(value->getType(), -limit);
  Constant* high = ConstantFP::get(value->getType(), limit);
  Value* truncated = b_.CreateUnaryIntrinsic(Intrinsic::trunc, value);
  Value* fits = b_.CreateAnd(b_.CreateFCmpOGE(truncated, low), b_.CreateFCmpOLT(truncated, high));
  Value* safe = b_.CreateSelect(fits, truncated, Constant::getNullValue(value->getType()));
  return b_.CreateSelect(fits, b_.CreateFPToSI(safe, type), bits(type, lowestInteger(to)));
}

// The float next to a double, with an odd last bit unless the double is a float. Rounding it again to fewer bits gives the same as
// rounding the double directly.
Value* PointEmitter::roundToOddFloat(Value* value) {
  Value* nearest = b_.CreateFPTrunc(value, withElement(value, b_.getFloatTy()));
  Value* back = b_.CreateFPExt(nearest, value->getType());
  Type* type = withElement(value, b_.getInt32Ty());
  Value* pattern = b_.CreateBitCast(nearest, type);
  Value* away =
      b_.CreateFCmpOGT(b_.CreateUnaryIntrinsic(Intrinsic::fabs, back), b_.CreateUnaryIntrinsic(Intrinsic::fabs, value));
  Value* toZero = b_.CreateSub(pattern, b_.CreateZExt(away, type));
  Value* odd = b_.CreateOr(toZero, bits(type, 1));
  Value* inexact = b_.CreateFCmpONE(back, value);
  return b_.CreateBitCast(b_.CreateSelect(inexact, odd, pattern), nearest->getType());
}

Value* PointEmitter::toHalfPrecision(Value* value, DataType from, DataType to) {
  if (from == DataType::Int) {
    // Integers of more than 53 bits become odd multiples of 2^11, which a double holds.
    Type* type = value->getType();
    Value* magnitude = b_.CreateBinaryIntrinsic(Intrinsic::smax, value, b_.CreateNeg(value));
    Value* large = b_.CreateICmpUGT(magnitude, bits(type, int64_t{1} << 53));
    Value* rest = b_.CreateAnd(value, bits(type, 0x7ff));
    Value* sticky = b_.CreateSelect(b_.CreateICmpNE(rest, bits(type, 0)), bits(type, 0x800), bits(type, 0));
    Value* shortened = b_.CreateOr(b_.CreateAnd(value, bits(type, ~int64_t{0x7ff})), sticky);
    value = b_.CreateSelect(large, shortened, value);
  }
  if (!isFloatingPoint(from)) {
    const DataType exact = isIntegral(from) ? DataType::Double : DataType::Float;
    value = toFloating(value, from, exact);
    from = exact;
  }
  if (from == DataType::Double) {
    value = roundToOddFloat(value);
  }
  if (to != DataType::Half || !f16c_) {
    return to == DataType::Half ? floatBitsToHalf(value) : floatBitsToBFloat16(value);
  }
  Value* half = b_.CreateFPTrunc(value, withElement(value, b_.getHalfTy()));
  return b_.CreateBitCast(half, withElement(value, b_.getInt16Ty()));
}

// The machine's instruction takes subnormal numbers for zero. It rounds the digits of a normal number with the same fraction instead, and
// the difference of the exponents is taken away; zeros go the same way. Only integers are compared, because the machine may be set to take
// subnormal numbers for zero in all instructions.
Value* PointEmitter::machineBFloat16(Value* value) {
  constexpr int64_t kExponent = 0x7f800000;
  constexpr int64_t kOne = 0x3f800000;  // 1.0
  Type* type = withElement(value, b_.getInt32Ty());
  Value* pattern = b_.CreateBitCast(value, type);
  Value* subnormal = b_.CreateICmpEQ(b_.CreateAnd(pattern, bits(type, kExponent)), bits(type, 0));
  Value* normal = b_.CreateSelect(subnormal, b_.CreateOr(pattern, bits(type, kOne)), pattern);
  Value* rounded =
      b_.CreateIntrinsic(Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {b_.CreateBitCast(normal, value->getType())});
  Type* halves = withElement(value, b_.getInt16Ty());
  rounded = b_.CreateBitCast(rounded, halves);
  return b_.CreateSelect(subnormal, b_.CreateSub(rounded, bits(halves, kOne >> 16)), rounded);
}

// The machine's instruction alone, and a rarely taken branch for vectors with subnormal numbers: to mend each result makes it wait for two
// masks, which takes a fifth of a kernel's time.
std::vector<Value*> PointEmitter::castGroup(std::span<Value* const> values, DataType from, DataType to) {
  const auto is512Bits = [](Value* v) {
    const auto* vector = dyn_cast<FixedVectorType>(v->getType());
    return vector != nullptr && vector->getNumElements() == 16;
  };
  const bool toBFloat = isHalfPrecision(to) && to != DataType::Half;
  if (!bf16_ || from != DataType::Float || !toBFloat || !std::ranges::all_of(values, is512Bits)) {
    return {};
  }
  Type* type = withElement(values[0], b_.getInt32Ty());
  const std::vector<Value*> inLine = mapped(values, [&](Value* v) -> Value* {
    Value* rounded = b_.CreateIntrinsic(Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {v});
    return b_.CreateBitCast(rounded, withElement(v, b_.getInt16Ty()));
  });
  Value* least = nullptr;  // of the magnitudes, twice; one less, so that zeros are the largest
  for (Value* v : values) {
    Value* pattern = b_.CreateBitCast(v, type);
    Value* magnitude = b_.CreateAdd(b_.CreateAdd(pattern, pattern), bits(type, -1));
    least = least == nullptr ? magnitude : b_.CreateBinaryIntrinsic(Intrinsic::umin, least, magnitude);
  }
  constexpr int64_t kLeastNormal = 2 * 0x00800000 - 1;
  Value* subnormal = b_.CreateOrReduce(b_.CreateICmpULT(least, bits(type, kLeastNormal)));
  return rarely(subnormal, "subnormal", inLine,
                [&] { return mapped(values, [&](Value* v) { return machineBFloat16(v); }); });
}

Value* PointEmitter::floatBitsToBFloat16(Value* value) {
  const auto* vector = dyn_cast<FixedVectorType>(value->getType());
  if (bf16_ && vector != nullptr && vector->getNumElements() == 16) {
    return machineBFloat16(value);
  }
  Type* type = withElement(value, b_.getInt32Ty());
  Value* pattern = b_.CreateBitCast(value, type);
  Value* high = b_.CreateLShr(pattern, bits(type, 16));
  Value* odd = b_.CreateAnd(high, bits(type, 1));
  Value* rounded = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(pattern, odd), bits(type, 0x7fff)), bits(type, 16));
  Value* quiet = b_.CreateOr(high, bits(type, 0x40));
  Value* result = b_.CreateSelect(b_.CreateFCmpUNO(value, value), quiet, rounded);
  return b_.CreateTrunc(result, withElement(value, b_.getInt16Ty()));
}

Value* PointEmitter::floatBitsToHalf(Value* value) {
  Type* type = withElement(value, b_.getInt32Ty());
  Value* pattern = b_.CreateBitCast(value, type);
  Value* sign = b_.CreateAnd(b_.CreateLShr(pattern, bits(type, 16)), bits(type, 0x8000));
  Value* rest = b_.CreateAnd(pattern, bits(type, 0x7fffffff));
  // Normal: rounds and rebiases at once. Subnormal: adding 0.5 leaves the rounded value in the low bits.
  Value* odd = b_.CreateAnd(b_.CreateLShr(rest, bits(type, 13)), bits(type, 1));
  Value* normal = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(rest, odd), bits(type, 0xfff - 0x38000000)), bits(type, 13));
  Value* shifted = b_.CreateFAdd(b_.CreateBitCast(rest, value->getType()), ConstantFP::get(value->getType(), 0.5));
  Value* subnormal = b_.CreateSub(b_.CreateBitCast(shifted, type), bits(type, 0x3f000000));
  Value* result = b_.CreateSelect(b_.CreateICmpULT(rest, bits(type, 0x38800000)), subnormal, normal);
  result = b_.CreateSelect(b_.CreateICmpUGE(rest, bits(type, 0x477ff000)), bits(type, 0x7c00), result);
  result = b_.CreateSelect(b_.CreateICmpUGT(rest, bits(type, 0x7f800000)), bits(type, 0x7e00), result);
  return b_.CreateTrunc(b_.CreateOr(sign, result), withElement(value, b_.getInt16Ty()));
}

Value* PointEmitter::fromHalfPrecision(Value* value, DataType from) {
  if (from != DataType::Half) {
    Type* type = withElement(value, b_.getInt32Ty());
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(value, type), bits(type, 16)),
                            withElement(value, b_.getFloatTy()));
  }
  if (!f16c_) {
    return halfBitsToFloat(value);
  }
  return b_.CreateFPExt(b_.CreateBitCast(value, withElement(value, b_.getHalfTy())),
                        withElement(value, b_.getFloatTy()));
}

Value* PointEmitter::halfBitsToFloat(Value* value) {
  Type* type = withElement(value, b_.getInt32Ty());
  Type* floats = withElement(value, b_.getFloatTy());
  Value* pattern = b_.CreateZExt(value, type);
  Value* sign = b_.CreateShl(b_.CreateAnd(pattern, bits(type, 0x8000)), bits(type, 16));
  Value* rest = b_.CreateAnd(pattern, bits(type, 0x7fff));
  Value* shifted = b_.CreateShl(rest, bits(type, 13));
  Value* subnormal = b_.CreateFMul(b_.CreateSIToFP(rest, floats), ConstantFP::get(floats, 0x1p-24));
  Value* result = b_.CreateSelect(b_.CreateICmpULT(rest, bits(type, 0x400)), b_.CreateBitCast(subnormal, type),
                                  b_.CreateAdd(shifted, bits(type, 0x38000000)));
  result =
      b_.CreateSelect(b_.CreateICmpUGE(rest, bits(type, 0x7c00)), b_.CreateOr(shifted, bits(type, 0x7f800000)), result);
  return b_.CreateBitCast(b_.CreateOr(result, sign), floats);
}

}  // namespace meshfuse
