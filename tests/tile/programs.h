// Tile programs written by hand, for the tests of the tile language and of both emitters.
//
// Sizes are run-time arguments `M`, `N`, ... in the order of `sizes`; digits are chosen for the given values, and the only
// facts the programs know are powers of two (at most 64) that divide the values. Tensors are contiguous, in the order given
// with each function; arithmetic is in Float (Double for Double) whatever the element type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tile/tile.h"

namespace meshfuse::tile {

struct Example {
  Program program;
  std::vector<int64_t> sizes;   // values of program.sizes
  std::vector<double> scalars;  // values of program.scalars
};

// Z[n] = X[n] + Y[n]                                               tensors X Y Z
Example addProgram(Target target, DataType dtype, int64_t n);
// Y = gelu(X + B), B by columns, erf form                           tensors X[M, N] B[N] Y[M, N]
Example biasGeluProgram(Target target, DataType dtype, int64_t m, int64_t n);
// Y = softmax of rows of X                                          tensors X[M, N] Y[M, N] (CPU: scratch E[N])
Example softmaxProgram(Target target, DataType dtype, int64_t m, int64_t n);
// Y = (X - mean) * rstd * W + B by rows, with their statistics       tensors X[M, N] W[N] B[N] Y[M, N] Mean[M] Rstd[M]; scalar eps
Example layerNormProgram(Target target, DataType dtype, int64_t m, int64_t n);
// Y[m] = sum over n of X[m, n]                                      tensors X[M, N] Y[M]
Example innerSumProgram(Target target, DataType dtype, int64_t m, int64_t n);
// Y[n] = sum over m of X[m, n] in parts of rows, combined by the last arriver
//                                                                   tensors X[M, N] Y[N] P[parts, N] (workspace) C[columns]
Example outerSumProgram(Target target, DataType dtype, int64_t m, int64_t n);
// Y[n, m] = X[m, n]                                                 tensors X[M, N] Y[N, M]
Example transposeProgram(Target target, DataType dtype, int64_t m, int64_t n);
// Rows in blocks of a vector V: Y takes its last (3 m) % V elements of X and the others of Z, W its last 5 (of Double: 3).
// CPU; N is a multiple of V.                                        tensors X[M, N] Z[M, N] Y[M, N] W[M, N]
Example shiftProgram(DataType dtype, int64_t m, int64_t n);
// Y = columns of A, then of B, with one column of `fill` before and after
//                                                                   tensors A[M, N] B[M, K] Y[M, N + K + 2]; scalar fill
Example padCatProgram(Target target, DataType dtype, int64_t m, int64_t n, int64_t k);
// Y[m, n] = X[I[m], n], I of type Int                               tensors X[K, N] I[M] Y[M, N]
Example gatherProgram(Target target, DataType dtype, int64_t k, int64_t m, int64_t n);
// Y = X / keep where random(seed, offset + position) < keep, else 0  tensors X[N] Y[N]; scalars seed offset (Int) keep (Float)
Example dropoutProgram(Target target, DataType dtype, int64_t n);

// One of each kind above, at sizes small enough for a golden text.
struct NamedExample {
  std::string name;
  Example example;
};
std::vector<NamedExample> representativePrograms();

}  // namespace meshfuse::tile
