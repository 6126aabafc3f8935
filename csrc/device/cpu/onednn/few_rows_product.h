// Products of up to 16 rows of BFloat16, or of 8 to 16 rows of Float, in C++, where the elements of A and of B lie side by side along k.
// For processors with AVX-512 and, for BFloat16, its instructions. B is read where it lies: the library, and our own code for more rows,
// copy it first, which takes longer than the product. Each element is the sum of 16 chains of fused multiply-adds, of every 16th element of
// k or, of BFloat16, every 16th pair; the bias is added last, and a BFloat16 result is then rounded from Float. Subnormal operands and sums
// of BFloat16 count as zeros.
#pragma once

#include <cstdint>

#include "device/matrix_product.h"

namespace meshfuse {

// Whether multiplyFewRows is to be called for the product, in place of the library. False in a build without the library.
[[nodiscard]] bool multipliesFewRows(const MatrixProduct& p);
// The columns of the result that are worth a thread.
[[nodiscard]] int64_t columnsOfFewRows(const MatrixProduct& p);
// Columns [column, column + columns) of one product of the batch. a, b: its matrices; bias: null without one; result: its first element.
void multiplyFewRows(const MatrixProduct& p, int64_t column, int64_t columns, const void* a, const void* b,
                     const void* bias, void* result);

}  // namespace meshfuse
