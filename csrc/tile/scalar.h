// Operations on single elements, for the interpreter of tile programs. The semantics are those of ir/point_op.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "ir/point_op.h"
#include "tensor/dtype.h"
#include "tensor/reduce_op.h"

namespace meshfuse::tile {

// An element: `real` of floating types, exact in the type; else `integer`, in the type's range (Bool: 0 or 1).
union Scalar {
  double real;
  int64_t integer;
};

[[nodiscard]] inline Scalar realScalar(double value) { return {.real = value}; }
[[nodiscard]] inline Scalar integerScalar(int64_t value) { return {.integer = value}; }

// `dtype`: of the operands, of the last two for Where. Float operations are done in double and rounded once.
[[nodiscard]] Scalar applyPoint(PointOp op, DataType dtype, std::span<const Scalar> operands);
// As castOp: floating to integer truncates; NaN and values out of range give the minimum of a signed type. Unsigned types keep the low bits
// of the truncated number; NaN gives 0.
[[nodiscard]] Scalar castScalar(Scalar value, DataType from, DataType to);

// Sums and products of floating types are accumulated in a wider type and rounded at the end, so the order of elements hardly matters.
class Reduction {
 public:
  Reduction(ReduceOp op, DataType dtype);
  void add(Scalar value);
  Scalar result() const;

 private:
  ReduceOp op_;
  DataType dtype_;
  long double real_;
  int64_t integer_;
};

// Elements in memory.
[[nodiscard]] Scalar readElement(const void* at, DataType dtype);
void writeElement(void* at, DataType dtype, Scalar value);

// The four words of Philox4x32-10 for a 64-bit key and a 128-bit counter.
[[nodiscard]] std::array<uint32_t, 4> philox(uint64_t key, uint64_t counterHigh, uint64_t counterLow);

}  // namespace meshfuse::tile
