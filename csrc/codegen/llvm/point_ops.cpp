#include "codegen/llvm/point_ops.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>

#include "base/ranges.h"

namespace meshfuse {

using namespace llvm;

namespace {

Constant* zero(Value* like) { return Constant::getNullValue(like->getType()); }
Constant* number(Value* like, double value) { return ConstantFP::get(like->getType(), value); }
Constant* integerLike(Value* like, int64_t value) { return ConstantInt::get(like->getType(), value, true); }

// Ops that are one instruction.
struct OpcodeRow {
  PointOp op;
  Instruction::BinaryOps opcode;
};
constexpr OpcodeRow kFloatingOpcodes[] = {{PointOp::Add, Instruction::FAdd},
                                          {PointOp::Sub, Instruction::FSub},
                                          {PointOp::Mul, Instruction::FMul},
                                          {PointOp::Div, Instruction::FDiv}};
constexpr OpcodeRow kIntegerOpcodes[] = {
    {PointOp::Add, Instruction::Add},      {PointOp::Sub, Instruction::Sub},
    {PointOp::Mul, Instruction::Mul},      {PointOp::BitwiseAnd, Instruction::And},
    {PointOp::BitwiseOr, Instruction::Or}, {PointOp::BitwiseXor, Instruction::Xor}};

// Ops that are one intrinsic function of a floating type.
struct IntrinsicRow {
  PointOp op;
  Intrinsic::ID id;
};
constexpr IntrinsicRow kIntrinsics[] = {{PointOp::Abs, Intrinsic::fabs},        {PointOp::Ceil, Intrinsic::ceil},
                                        {PointOp::Floor, Intrinsic::floor},     {PointOp::Trunc, Intrinsic::trunc},
                                        {PointOp::Round, Intrinsic::roundeven}, {PointOp::Sqrt, Intrinsic::sqrt}};

using Predicate = CmpInst::Predicate;
struct Comparison {
  PointOp op;
  Predicate floating;
  Predicate withSign;  // integers that may be negative
  Predicate withoutSign;
};
constexpr Comparison kComparisons[] = {
    {PointOp::Eq, Predicate::FCMP_OEQ, Predicate::ICMP_EQ, Predicate::ICMP_EQ},
    {PointOp::Ne, Predicate::FCMP_UNE, Predicate::ICMP_NE, Predicate::ICMP_NE},
    {PointOp::Gt, Predicate::FCMP_OGT, Predicate::ICMP_SGT, Predicate::ICMP_UGT},
    {PointOp::Ge, Predicate::FCMP_OGE, Predicate::ICMP_SGE, Predicate::ICMP_UGE},
    {PointOp::Lt, Predicate::FCMP_OLT, Predicate::ICMP_SLT, Predicate::ICMP_ULT},
    {PointOp::Le, Predicate::FCMP_OLE, Predicate::ICMP_SLE, Predicate::ICMP_ULE},
};

// Null if the table has no row of the op.
template <class Row, size_t n>
const Row* rowOf(const Row (&rows)[n], PointOp op) {
  const Row* row = std::ranges::find(rows, op, &Row::op);
  return row == std::end(rows) ? nullptr : row;
}

}  // namespace

PointEmitter::PointEmitter(IRBuilderBase& builder, const CpuTarget& target, Call call)
    : b_(builder),
      f16c_(target.has("f16c")),
      bf16_(target.has("avx512bf16") && target.vectorBytes == 64),
      math_(builder, target),
      call_(std::move(call)) {}

Value* PointEmitter::isTrue(Value* x) {
  return x->getType()->getScalarType()->isIntegerTy(1) ? x
         : x->getType()->isFPOrFPVectorTy()            ? b_.CreateFCmpUNE(x, zero(x))
                                                       : b_.CreateICmpNE(x, zero(x));
}

Value* PointEmitter::point(PointOp op, DataType dtype, std::span<Value* const> operands) {
  if (const Comparison* row = rowOf(kComparisons, op)) {
    const bool hasSign = isIntegral(dtype) && !isUnsigned(dtype);
    auto predicate = isFloatingPoint(dtype) ? row->floating : hasSign ? row->withSign : row->withoutSign;
    return b_.CreateCmp(predicate, operands[0], operands[1]);
  }
  switch (op) {
    case PointOp::LogicalAnd:
    case PointOp::LogicalOr:
    case PointOp::LogicalXor:
    case PointOp::LogicalNot:
      return logical(op, operands);
    case PointOp::Maximum:
    case PointOp::Minimum:
      if (!isFloatingPoint(dtype)) {
        const bool least = op == PointOp::Minimum;
        Intrinsic::ID id = isUnsigned(dtype) ? (least ? Intrinsic::umin : Intrinsic::umax)
                                             : (least ? Intrinsic::smin : Intrinsic::smax);
        return b_.CreateBinaryIntrinsic(id, operands[0], operands[1]);
      }
      return op == PointOp::Minimum ? math_.minimum(operands[0], operands[1]) : math_.maximum(operands[0], operands[1]);
    case PointOp::Where:
      return b_.CreateSelect(operands[0], operands[1], operands[2]);
    default:
      return isFloatingPoint(dtype) ? floating(op, dtype, operands) : integer(op, dtype, operands);
  }
}

Value* PointEmitter::logical(PointOp op, std::span<Value* const> operands) {
  Value* a = isTrue(operands[0]);
  if (op == PointOp::LogicalNot) {
    return b_.CreateNot(a);
  }
  Value* b = isTrue(operands[1]);
  return op == PointOp::LogicalAnd  ? b_.CreateAnd(a, b)
         : op == PointOp::LogicalOr ? b_.CreateOr(a, b)
                                    : b_.CreateXor(a, b);
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
  if (const OpcodeRow* row = rowOf(kFloatingOpcodes, op)) {
    return b_.CreateBinOp(row->opcode, x, operands[1]);
  }
  if (const IntrinsicRow* row = rowOf(kIntrinsics, op)) {
    return b_.CreateUnaryIntrinsic(row->id, x);
  }
  if (std::vector<Value*> inlined = pointGroup(op, dtype, Precision::Full, {x}); !inlined.empty()) {
    return inlined[0];
  }
  switch (op) {
    case PointOp::Frac:
      return b_.CreateFSub(x, b_.CreateUnaryIntrinsic(Intrinsic::trunc, x));
    case PointOp::Neg:
      return b_.CreateFNeg(x);
    case PointOp::Reciprocal:
      return b_.CreateFDiv(number(x, 1), x);
    case PointOp::Rsqrt:
      return b_.CreateFDiv(number(x, 1), b_.CreateUnaryIntrinsic(Intrinsic::sqrt, x));
    case PointOp::Sign: {
      Value* unsignedZero = b_.CreateFAdd(x, zero(x));  // -0 + 0 is 0; NaN stays
      Value* negative = b_.CreateSelect(b_.CreateFCmpOLT(x, zero(x)), number(x, -1), unsignedZero);
      return b_.CreateSelect(b_.CreateFCmpOGT(x, zero(x)), number(x, 1), negative);
    }
    case PointOp::Signbit: {
      Type* bits = x->getType()->getWithNewType(b_.getIntNTy(bitWidth(dtype)));
      return b_.CreateICmpSLT(b_.CreateBitCast(x, bits), Constant::getNullValue(bits));
    }
    case PointOp::IsFinite:
    case PointOp::IsInf:
    case PointOp::IsNan:
    case PointOp::IsNegInf:
    case PointOp::IsPosInf:
      return floatingTest(op, x);
    case PointOp::Fma:
      return b_.CreateIntrinsic(Intrinsic::fma, {x->getType()}, {x, operands[1], operands[2]});
    case PointOp::Sigmoid: {
      Value* argument = b_.CreateFNeg(b_.CreateUnaryIntrinsic(Intrinsic::fabs, x));
      Value* e = call_(PointOp::Exp, dtype, std::span<Value* const>(&argument, 1));
      Value* above = b_.CreateSelect(b_.CreateFCmpOLT(x, zero(x)), e, number(x, 1));
      return b_.CreateFDiv(above, b_.CreateFAdd(e, number(x, 1)));
    }
    default:
      return call_(op, dtype, operands);
  }
}

std::vector<Value*> PointEmitter::pointGroup(PointOp op, DataType dtype, Precision precision,
                                             const std::vector<Value*>& operands) {
  struct Row {
    PointOp op;
    VectorMath::Group (VectorMath::*function)(const VectorMath::Group& x);
  };
  static constexpr Row kRows[] = {{PointOp::Exp, &VectorMath::exp}, {PointOp::Exp2, &VectorMath::exp2},
                                  {PointOp::Log, &VectorMath::log}, {PointOp::Tanh, &VectorMath::tanh},
                                  {PointOp::Erf, &VectorMath::erf}, {PointOp::Sigmoid, &VectorMath::sigmoid}};
  if (dtype == DataType::Float && (op == PointOp::Sin || op == PointOp::Cos) && math_.reducesAngles()) {
    return sineGroup(op, operands);
  }
  if (dtype == DataType::Float && op == PointOp::Sigmoid && precision == Precision::Coarse &&
      math_.hasCoarseSigmoid(operands)) {
    return coarseSigmoidGroup(operands);
  }
  const Row* row = dtype == DataType::Float ? rowOf(kRows, op) : nullptr;
  return row == nullptr ? std::vector<Value*>{} : (math_.*row->function)(operands);
}

// In line, and a rarely taken branch that calls the scalar function if a number is too large. Each lane takes what its own number asks for, so
// its bits do not depend on the other lanes. No vector is in a register during a call, which may change all of them: a register allocator
// that keeps a value in one place would keep such a vector in memory in the usual case too.
std::vector<Value*> PointEmitter::sineGroup(PointOp op, const std::vector<Value*>& operands) {
  const std::vector<Value*> inLine = op == PointOp::Sin ? math_.sin(operands) : math_.cos(operands);
  Type* type = operands[0]->getType();
  Type* integers = type->getWithNewType(b_.getInt32Ty());
  const auto magnitude = [&](Value* x) {  // as an integer, which grows with it
    return b_.CreateAnd(b_.CreateBitCast(x, integers), ConstantInt::get(integers, INT32_MAX));
  };
  Constant* limit = ConstantExpr::getBitCast(number(operands[0], VectorMath::kMostReduced), integers);
  Value* largest = magnitude(operands[0]);
  for (Value* x : std::span(operands).subspan(1)) {
    largest = b_.CreateBinaryIntrinsic(Intrinsic::umax, largest, magnitude(x));
  }
  Value* any = b_.CreateICmpUGT(largest, limit);
  Value* isLarge = any->getType()->isVectorTy() ? b_.CreateOrReduce(any) : any;
  return rarely(isLarge, "large", inLine, [&] {
    const auto stored = [&](Value* v) {
      Value* slot = stackSlot(type);
      b_.CreateStore(v, slot);
      return slot;
    };
    const std::vector<Value*> arguments = mapped(operands, stored);
    const std::vector<Value*> results = mapped(inLine, stored);
    for (int64_t i : indices(operands)) {
      Value* argument = b_.CreateLoad(type, arguments[i]);
      Value* called = call_(op, DataType::Float, std::span<Value* const>(&argument, 1));
      Value* exceeds = b_.CreateICmpUGT(magnitude(b_.CreateLoad(type, arguments[i])), limit);
      b_.CreateStore(b_.CreateSelect(exceeds, called, b_.CreateLoad(type, results[i])), results[i]);
    }
    return mapped(results, [&](Value* slot) -> Value* { return b_.CreateLoad(type, slot); });
  });
}

Value* PointEmitter::stackSlot(Type* type) {
  const IRBuilderBase::InsertPointGuard guard(b_);
  BasicBlock& entry = b_.GetInsertBlock()->getParent()->getEntryBlock();
  b_.SetInsertPoint(&entry, entry.begin());
  return b_.CreateAlloca(type);
}

// In line, and a rarely taken branch for vectors with a number that is too small, as above. The bits of negative numbers, as integers without
// a sign, grow with the magnitude and are larger than those of positive ones, so one maximum tells.
std::vector<Value*> PointEmitter::coarseSigmoidGroup(const std::vector<Value*>& operands) {
  const std::vector<Value*> inLine = math_.coarseSigmoid(operands);
  Type* integers = operands[0]->getType()->getWithNewType(b_.getInt32Ty());
  Value* largest = b_.CreateBitCast(operands[0], integers);
  for (size_t i = 1; i < operands.size(); i++) {
    largest = b_.CreateBinaryIntrinsic(Intrinsic::umax, largest, b_.CreateBitCast(operands[i], integers));
  }
  Constant* limit = ConstantExpr::getBitCast(number(operands[0], VectorMath::kLeastCoarse), integers);
  Value* isSmall = b_.CreateOrReduce(b_.CreateICmpUGT(largest, limit));
  return rarely(isSmall, "underflow", inLine, [&] {
    return mapped(indices(operands), [&](int64_t i) {
      Value* below = b_.CreateFCmpOLT(operands[i], number(operands[i], VectorMath::kLeastCoarse));
      return b_.CreateSelect(below, math_.sigmoid({operands[i]})[0], inLine[i]);
    });
  });
}

std::vector<Value*> PointEmitter::rarely(Value* condition, const char* name, const std::vector<Value*>& usual,
                                         const std::function<std::vector<Value*>()>& instead) {
  BasicBlock* before = b_.GetInsertBlock();
  BasicBlock* rare = BasicBlock::Create(b_.getContext(), name, before->getParent());
  BasicBlock* after = BasicBlock::Create(b_.getContext(), "", before->getParent());
  b_.CreateCondBr(condition, rare, after, MDBuilder(b_.getContext()).createBranchWeights(1, 1 << 20));
  b_.SetInsertPoint(rare);
  const std::vector<Value*> chosen = instead();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  return mapped<Value*>(indices(usual), [&](int64_t i) {
    PHINode* result = b_.CreatePHI(usual[i]->getType(), 2);
    result->addIncoming(usual[i], before);
    result->addIncoming(chosen[i], rare);
    return result;
  });
}

Value* PointEmitter::integer(PointOp op, DataType dtype, std::span<Value* const> operands) {
  Value* x = operands[0];
  int64_t width = bitWidth(dtype);
  if (const OpcodeRow* row = rowOf(kIntegerOpcodes, op)) {
    return b_.CreateBinOp(row->opcode, x, operands[1]);
  }
  if (isUnsigned(dtype)) {
    switch (op) {
      case PointOp::Abs:
        return x;
      case PointOp::Sign:
        return b_.CreateZExt(isTrue(x), x->getType());
      case PointOp::Signbit:
        return Constant::getNullValue(x->getType()->getWithNewBitWidth(1));
      case PointOp::Shr: {
        Value* inside = b_.CreateICmpULT(operands[1], integerLike(x, width));
        return b_.CreateSelect(inside, b_.CreateLShr(x, b_.CreateAnd(operands[1], integerLike(x, width - 1))), zero(x));
      }
      default:
        break;
    }
  }
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
    case PointOp::Shl: {
      Value* amount = operands[1];
      Value* inside = b_.CreateICmpULT(amount, integerLike(x, width));
      return b_.CreateSelect(inside, b_.CreateShl(x, b_.CreateAnd(amount, integerLike(x, width - 1))), zero(x));
    }
    case PointOp::Shr: {
      Value* amount = operands[1];
      Value* most = b_.CreateSelect(b_.CreateICmpULT(amount, integerLike(x, width)), amount, integerLike(x, width - 1));
      return b_.CreateAShr(x, most);
    }
    default:
      return call_(op, dtype, operands);
  }
}

}  // namespace meshfuse
