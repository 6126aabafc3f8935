// The functions that emitted code calls for rare ops: over arrays, so that one call serves all lanes of a vector.
#pragma once

#include <string>

#include "ir/point_op.h"
#include "tensor/dtype.h"

namespace meshfuse {

// void f(T* out, const T* a, const T* b, int64_t n): b is ignored by unary ops. cpuRuntimeSymbols has one for every op and type that
// PointEmitter does not write inline. The one of CheckedIndex is void f(const T* index, const T* extent, uint64_t bad): it
// reports the first of the lanes whose bits are set in `bad`, at least one.
[[nodiscard]] std::string scalarFunctionSymbol(PointOp op, DataType dtype);

}  // namespace meshfuse
