// Products of few rows of BFloat16 in C++, where the elements of A and of B lie side by side along k, for processors with instructions for
// BFloat16: the library copies B first, which takes longer than the product. Each element is the sum of 16 chains, each of every 16th pair
// of k, and is rounded once. Subnormal operands and sums count as zeros.
#pragma once

#include <cstdint>

#include "device/matrix_product.h"

namespace meshfuse {

// Whether multiplyBFloat16 is to be called for the product, in place of the library. False in a build without the library.
[[nodiscard]] bool multipliesBFloat16(const MatrixProduct& p);
// The columns of the result that are worth a thread.
[[nodiscard]] int64_t columnsOfBFloat16(const MatrixProduct& p);
// Columns [column, column + columns) of one product of the batch. a, b: its matrices; bias: null without one; result: its first element.
void multiplyBFloat16(const MatrixProduct& p, int64_t column, int64_t columns, const uint16_t* a, const uint16_t* b,
                      const uint16_t* bias, void* result);

}  // namespace meshfuse
