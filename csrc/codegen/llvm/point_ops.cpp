#include "codegen/llvm/point_ops.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "base/error.h"

namespace meshfuse {

using namespace llvm;

namespace {

Constant* zero(Value* like) { return Constant::getNullValue(like->getType()); }
Constant* number(Value* like, double value) { return ConstantFP::get(like->getType(), value); }
Constant* integerLike(Value* like, int64_t value) { return ConstantInt::get(like->getType(), value, true); }

}  // namespace

PointEmitter::PointEmitter(IRBuilderBase& builder, const CpuTarget& target, Call call)
    : b_(builder), f16c_(target.has("f16c")), math_(builder, target), call_(std::move(call)) {}

Value* PointEmitter::isTrue(Value* x) {
  if (x->getType()->getScalarType()->isIntegerTy(1)) {
    return x;
  }
  return x->getType()->isFPOrFPVectorTy() ? b_.CreateFCmpUNE(x, zero(x)) : b_.CreateICmpNE(x, zero(x));
}

Value* PointEmitter::point(PointOp op, DataType dtype, std::span<Value* const> operands) {
  switch (op) {
    case PointOp::Eq:
    case PointOp::Ne:
    case PointOp::Gt:
    case PointOp::Ge:
    case PointOp::Lt:
    case PointOp::Le:
      return compare(op, dtype, operands[0], operands[1]);
    case PointOp::LogicalAnd:
    case PointOp::LogicalOr:
    case PointOp::LogicalXor:
    case PointOp::LogicalNot:
      return logical(op, dtype, operands);
    case PointOp::Maximum:
    case PointOp::Minimum:
      return extremum(op == PointOp::Minimum ? ReduceOp::Min : ReduceOp::Max, dtype, operands[0], operands[1]);
    case PointOp::Where:
      return b_.CreateSelect(operands[0], operands[1], operands[2]);
    default:
      return isFloatingPoint(dtype) ? floating(op, dtype, operands) : integer(op, dtype, operands);
  }
}

Value* PointEmitter::compare(PointOp op, DataType dtype, Value* a, Value* b) {
  using P = CmpInst::Predicate;
  struct Row {
    PointOp op;
    P floating;
    P integer;
    P boolean;
  };
  static constexpr Row kRows[] = {
      {PointOp::Eq, P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ},   {PointOp::Ne, P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE},
      {PointOp::Gt, P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT}, {PointOp::Ge, P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE},
      {PointOp::Lt, P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT}, {PointOp::Le, P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE},
  };
  for (const Row& row : kRows) {
    if (row.op == op) {
      return b_.CreateCmp(isFloatingPoint(dtype)    ? row.floating
                          : dtype == DataType::Bool ? row.boolean
                                                    : row.integer,
                          a, b);
    }
  }
  throwInternalError("[emit] not a comparison");
}

Value* PointEmitter::logical(PointOp op, DataType, std::span<Value* const> operands) {
  Value* a = isTrue(operands[0]);
  switch (op) {
    case PointOp::LogicalNot:
      return b_.CreateNot(a);
    case PointOp::LogicalAnd:
      return b_.CreateAnd(a, isTrue(operands[1]));
    case PointOp::LogicalOr:
      return b_.CreateOr(a, isTrue(operands[1]));
    default:
      return b_.CreateXor(a, isTrue(operands[1]));
  }
}

// Max or Min.
Value* PointEmitter::extremum(tile::Combiner combiner, DataType dtype, Value* a, Value* b) {
  const bool smallest = combiner == ReduceOp::Min;
  if (!isFloatingPoint(dtype)) {
    return b_.CreateBinaryIntrinsic(smallest ? Intrinsic::smin : Intrinsic::smax, a, b);
  }
  return smallest ? math_.minimum(a, b) : math_.maximum(a, b);
}

Value* PointEmitter::combine(tile::Combiner combiner, DataType dtype, Value* a, Value* b) {
  return point(combineOp(combiner, dtype), dtype, std::array{a, b});
}

Value* PointEmitter::floatingTest(PointOp op, Value* x) {
  Constant* infinity = ConstantFP::getInfinity(x->getType());
  Value* magnitude = b_.CreateUnaryIntrinsic(Intrinsic::fabs, x);
  switch (op) {
    case PointOp::IsFinite:
      return b_.CreateFCmpOLT(magnitude, infinity);
    case PointOp::IsInf:
      return b_.CreateFCmpOEQ(magnitude, infinity);
    case PointOp::IsNan:
      return b_.CreateFCmpUNO(x, x);
    case PointOp::IsNegInf:
      return b_.CreateFCmpOEQ(x, ConstantFP::getInfinity(x->getType(), true));
    default:
      return b_.CreateFCmpOEQ(x, infinity);
  }
}

Value* PointEmitter::floating(PointOp op, DataType dtype, std::span<Value* const> operands) {
  Value* x = operands[0];
  bool isFloat = dtype == DataType::Float;
  switch (op) {
    case PointOp::Abs:
      return b_.CreateUnaryIntrinsic(Intrinsic::fabs, x);
    case PointOp::Ceil:
      return b_.CreateUnaryIntrinsic(Intrinsic::ceil, x);
    case PointOp::Floor:
      return b_.CreateUnaryIntrinsic(Intrinsic::floor, x);
    case PointOp::Trunc:
      return b_.CreateUnaryIntrinsic(Intrinsic::trunc, x);
    case PointOp::Round:
      return b_.CreateUnaryIntrinsic(Intrinsic::roundeven, x);
    case PointOp::Frac:
      return b_.CreateFSub(x, b_.CreateUnaryIntrinsic(Intrinsic::trunc, x));
    case PointOp::Neg:
      return b_.CreateFNeg(x);
    case PointOp::Reciprocal:
      return b_.CreateFDiv(number(x, 1), x);
    case PointOp::Sqrt:
      return b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x);
    case PointOp::Rsqrt:
      return b_.CreateFDiv(number(x, 1), b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x));
    case PointOp::Sign: {
      Value* negative = b_.CreateSelect(b_.CreateFCmpOLT(x, zero(x)), number(x, -1), x);
      return b_.CreateSelect(b_.CreateFCmpOGT(x, zero(x)), number(x, 1), negative);
    }
    case PointOp::Signbit: {
      Type* bits = x->getType()->getWithNewType(isFloat ? b_.getInt32Ty() : b_.getInt64Ty());
      return b_.CreateICmpSLT(b_.CreateBitCast(x, bits), Constant::getNullValue(bits));
    }
    case PointOp::IsFinite:
    case PointOp::IsInf:
    case PointOp::IsNan:
    case PointOp::IsNegInf:
    case PointOp::IsPosInf:
      return floatingTest(op, x);
    case PointOp::Add:
      return b_.CreateFAdd(x, operands[1]);
    case PointOp::Sub:
      return b_.CreateFSub(x, operands[1]);
    case PointOp::Mul:
      return b_.CreateFMul(x, operands[1]);
    case PointOp::Div:
      return b_.CreateFDiv(x, operands[1]);
    case PointOp::Fma:
      return b_.CreateIntrinsic(Intrinsic::fma, {x->getType()}, {x, operands[1], operands[2]});
    case PointOp::Exp:
    case PointOp::Exp2:
    case PointOp::Log:
    case PointOp::Tanh:
    case PointOp::Erf:
      return isFloat ? pointGroup(op, dtype, {x})[0] : call_(op, dtype, operands);
    case PointOp::Sigmoid: {
      if (isFloat) {
        return pointGroup(op, dtype, {x})[0];
      }
      Value* argument = b_.CreateFNeg(b_.CreateUnaryIntrinsic(Intrinsic::fabs, x));
      Value* e = call_(PointOp::Exp, dtype, std::span<Value* const>(&argument, 1));
      Value* above = b_.CreateSelect(b_.CreateFCmpOLT(x, zero(x)), e, number(x, 1));
      return b_.CreateFDiv(above, b_.CreateFAdd(e, number(x, 1)));
    }
    default:
      return call_(op, dtype, operands);
  }
}

std::vector<Value*> PointEmitter::pointGroup(PointOp op, DataType dtype, const std::vector<Value*>& operands) {
  if (dtype != DataType::Float) {
    return {};
  }
  switch (op) {
    case PointOp::Exp:
      return math_.exp(operands);
    case PointOp::Exp2:
      return math_.exp2(operands);
    case PointOp::Log:
      return math_.log(operands);
    case PointOp::Tanh:
      return math_.tanh(operands);
    case PointOp::Erf:
      return math_.erf(operands);
    case PointOp::Sigmoid:
      return math_.sigmoid(operands);
    default:
      return {};
  }
}

Value* PointEmitter::integer(PointOp op, DataType dtype, std::span<Value* const> operands) {
  Value* x = operands[0];
  int64_t width = bitWidth(dtype);
  switch (op) {
    case PointOp::Abs:
      return b_.CreateSelect(b_.CreateICmpSLT(x, zero(x)), b_.CreateNeg(x), x);
    case PointOp::Neg:
      return b_.CreateNeg(x);
    case PointOp::Sign: {
      Value* negative = b_.CreateSelect(b_.CreateICmpSLT(x, zero(x)), integerLike(x, -1), zero(x));
      return b_.CreateSelect(b_.CreateICmpSGT(x, zero(x)), integerLike(x, 1), negative);
    }
    case PointOp::Signbit:
      return b_.CreateICmpSLT(x, zero(x));
    case PointOp::BitwiseNot:
      return b_.CreateNot(x);
    case PointOp::Add:
      return b_.CreateAdd(x, operands[1]);
    case PointOp::Sub:
      return b_.CreateSub(x, operands[1]);
    case PointOp::Mul:
      return b_.CreateMul(x, operands[1]);
    case PointOp::BitwiseAnd:
      return b_.CreateAnd(x, operands[1]);
    case PointOp::BitwiseOr:
      return b_.CreateOr(x, operands[1]);
    case PointOp::BitwiseXor:
      return b_.CreateXor(x, operands[1]);
    case PointOp::Shl: {
      Value* amount = operands[1];
      Value* inside = b_.CreateICmpULT(amount, integerLike(x, width));
      return b_.CreateSelect(inside, b_.CreateShl(x, b_.CreateAnd(amount, integerLike(x, width - 1))), zero(x));
    }
    case PointOp::Shr: {
      Value* amount = operands[1];
      Value* most = b_.CreateSelect(b_.CreateICmpULT(amount, integerLike(x, width)), amount, integerLike(x, width - 1));
      return b_.CreateSelect(b_.CreateICmpSLT(amount, zero(x)), zero(x), b_.CreateAShr(x, most));
    }
    default:
      return call_(op, dtype, operands);
  }
}

}  // namespace meshfuse
