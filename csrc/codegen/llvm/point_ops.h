// Elementwise ops and casts as IR, over scalars and vectors alike.
//
// A value of a type is held as: Double double, Float float, 16-bit floating types their bits in an i16, integers an iN of
// their width, Bool an i1. In memory Bool is a byte that is 0 or 1.
#pragma once

#include <functional>
#include <span>

#include "codegen/llvm/emit.h"
#include "codegen/llvm/vector_math.h"

namespace meshfuse {

class PointEmitter {
 public:
  // A call of a scalar function of the given type over all elements of its operands.
  using Call = std::function<llvm::Value*(PointOp op, DataType dtype, std::span<llvm::Value* const> operands)>;

  PointEmitter(llvm::IRBuilderBase& builder, const CpuTarget& target, Call call);

  // `dtype`: of the operands (of Where: of the last two).
  llvm::Value* point(PointOp op, DataType dtype, std::span<llvm::Value* const> operands);
  // A unary op of several vectors, interleaved; empty if the op gains nothing from it.
  std::vector<llvm::Value*> pointGroup(PointOp op, DataType dtype, const std::vector<llvm::Value*>& operands);
  llvm::Value* cast(llvm::Value* value, DataType from, DataType to);
  llvm::Value* combine(tile::Combiner combiner, DataType dtype, llvm::Value* a, llvm::Value* b);

 private:
  llvm::Value* floating(PointOp op, DataType dtype, std::span<llvm::Value* const> operands);
  std::vector<llvm::Value*> sineGroup(PointOp op, const std::vector<llvm::Value*>& operands);
  llvm::Value* floatingTest(PointOp op, llvm::Value* x);
  llvm::Value* integer(PointOp op, DataType dtype, std::span<llvm::Value* const> operands);
  llvm::Value* logical(PointOp op, std::span<llvm::Value* const> operands);
  llvm::Value* isTrue(llvm::Value* x);

  llvm::Value* toFloating(llvm::Value* value, DataType from, DataType to);
  llvm::Value* toInteger(llvm::Value* value, DataType from, DataType to);
  llvm::Value* toHalfPrecision(llvm::Value* value, DataType from, DataType to);
  llvm::Value* fromHalfPrecision(llvm::Value* value, DataType from);
  llvm::Value* floatBitsToHalf(llvm::Value* value);
  llvm::Value* halfBitsToFloat(llvm::Value* value);
  llvm::Value* floatBitsToBFloat16(llvm::Value* value);
  llvm::Value* machineBFloat16(llvm::Value* value);
  llvm::Value* roundToOddFloat(llvm::Value* value);

  llvm::IRBuilderBase& b_;
  bool f16c_;
  bool bf16_;
  VectorMath math_;
  Call call_;
};

}  // namespace meshfuse
