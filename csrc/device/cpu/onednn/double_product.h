// Products of Double matrices in C++, as the library has none. Each element is one chain of fused multiply-adds in the order of k, so its bits
// are the same for all blocks, threads and processors that have fused multiply-adds.
#pragma once

#include <cstdint>

#include "device/matrix_product.h"
#include "device/result_blocks.h"

namespace meshfuse {

// False if the processor has no fused multiply-add on vectors, or in a build without the library.
[[nodiscard]] bool multipliesDoubles();
// Of a call of multiplyDoubles.
[[nodiscard]] int64_t doubleProductScratchBytes();
// Adds A B to a block. a, b: the matrices of the block's product; c: the first element of the block; scratch: 64-byte aligned, of one thread.
void multiplyDoubles(const MatrixProduct& p, const ResultBlock& block, const double* a, const double* b, double* c,
                     void* scratch);

}  // namespace meshfuse
