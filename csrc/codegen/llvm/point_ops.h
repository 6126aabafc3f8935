// Elementwise ops and casts as IR, over scalars and vectors alike.
//
// A value of a type is held as: Double double, Float float, 16-bit floating types their bits in an i16, integers an iN of
// their width, Bool an i1. In memory Bool is a byte that is 0 or 1.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "codegen/llvm/emit.h"
#include "codegen/llvm/vector_math.h"

namespace meshfuse {

// Coarse: all that reads the result rounds it to 16 bits (tile/coarse_values.h).
enum class Precision : uint8_t { Full, Coarse };

class PointEmitter {
 public:
  // A call of a scalar function of the given type over all elements of its operands.
  using Call = std::function<llvm::Value*(PointOp op, DataType dtype, std::span<llvm::Value* const> operands)>;

  PointEmitter(llvm::IRBuilderBase& builder, const CpuTarget& target, Call call);

  // `dtype`: of the operands (of Where: of the last two).
  llvm::Value* point(PointOp op, DataType dtype, std::span<llvm::Value* const> operands);
  // A unary op of several vectors, interleaved; empty if the op gains nothing from it.
  std::vector<llvm::Value*> pointGroup(PointOp op, DataType dtype, Precision precision,
                                       const std::vector<llvm::Value*>& operands);
  // A cast of several vectors; empty if nothing is gained by casting them together.
  std::vector<llvm::Value*> castGroup(std::span<llvm::Value* const> values, DataType from, DataType to);
  llvm::Value* cast(llvm::Value* value, DataType from, DataType to);
  llvm::Value* combine(tile::Combiner combiner, DataType dtype, llvm::Value* a, llvm::Value* b);

 private:
  llvm::Value* floating(PointOp op, DataType dtype, std::span<llvm::Value* const> operands);
  std::vector<llvm::Value*> sineGroup(PointOp op, const std::vector<llvm::Value*>& operands);
  std::vector<llvm::Value*> coarseSigmoidGroup(const std::vector<llvm::Value*>& operands);
  // instead(), as many values, in place of the usual ones if the condition, one bit, holds; code for a branch that is hardly ever taken.
  std::vector<llvm::Value*> rarely(llvm::Value* condition, const char* name, const std::vector<llvm::Value*>& usual,
                                   const std::function<std::vector<llvm::Value*>()>& instead);
  llvm::Value* stackSlot(llvm::Type* type);
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
