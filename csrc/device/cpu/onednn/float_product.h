// Small blocks of products of Float matrices in C++, for processors with AVX-512: the library writes the code of all its products of few rows
// in the first call of a process, which takes 20 ms. After that it takes about as long: for 16 to 32 rows, 192 to 384 columns and k of 96 and 384,
// multiplyFloats takes 0.93 to 1.11 times the time of dnnl_sgemm on one core; for 8 and 12 rows of up to 256 columns 0.79 to 1.31 times, the most
// where B is transposed and k is 384. Each element is one chain of fused multiply-adds in the order of k.
#pragma once

#include "device/matrix_product.h"
#include "device/result_blocks.h"

namespace meshfuse {

// Whether multiplyFloats is to be called for the block, in place of the library. False in a build without the library.
[[nodiscard]] bool multipliesFloats(const ResultBlock& block);
// Adds A B to a block. a, b: the matrices of the block's product; c: the first element of the block.
void multiplyFloats(const MatrixProduct& p, const ResultBlock& block, const float* a, const float* b, float* c);

}  // namespace meshfuse
