#include "device/cpu/onednn/double_product.h"

#include <immintrin.h>

#include <algorithm>

namespace meshfuse {

namespace {

constexpr int64_t kDepth = 256;  // of k: a panel of B stays in the first cache
constexpr int64_t kRows = 256;   // packed rows of A stay in the second cache
constexpr int64_t kMostColumns = 24;

// A tile of C whose sums are in registers
struct Tile {
  int64_t rows, columns;
  // Adds to C, whose rows are `stride` apart, the product of a panel of A, [depth, rows], and a panel of B, [depth, columns].
  void (*add)(const double* a, const double* b, int64_t depth, double* c, int64_t stride);
};

__attribute__((target("avx512f"))) void addAvx512(const double* a, const double* b, int64_t depth, double* c,
                                                  int64_t stride) {
  __m512d sums[8][3];
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; v++) {
      sums[r][v] = _mm512_loadu_pd(c + r * stride + 8 * v);
    }
  }
  for (int64_t k = 0; k < depth; k++, a += 8, b += 24) {
    const __m512d row[3] = {_mm512_load_pd(b), _mm512_load_pd(b + 8), _mm512_load_pd(b + 16)};
#pragma GCC unroll 8
    for (int64_t r = 0; r < 8; r++) {
      const __m512d factor = _mm512_set1_pd(a[r]);
#pragma GCC unroll 3
      for (int64_t v = 0; v < 3; v++) {
        sums[r][v] = _mm512_fmadd_pd(factor, row[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; v++) {
      _mm512_storeu_pd(c + r * stride + 8 * v, sums[r][v]);
    }
  }
}

__attribute__((target("avx2,fma"))) void addAvx2(const double* a, const double* b, int64_t depth, double* c,
                                                 int64_t stride) {
  __m256d sums[4][3];
#pragma GCC unroll 4
  for (int64_t r = 0; r < 4; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; v++) {
      sums[r][v] = _mm256_loadu_pd(c + r * stride + 4 * v);
    }
  }
  for (int64_t k = 0; k < depth; k++, a += 4, b += 12) {
    const __m256d row[3] = {_mm256_load_pd(b), _mm256_load_pd(b + 4), _mm256_load_pd(b + 8)};
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; r++) {
      const __m256d factor = _mm256_broadcast_sd(a + r);
#pragma GCC unroll 3
      for (int64_t v = 0; v < 3; v++) {
        sums[r][v] = _mm256_fmadd_pd(factor, row[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < 4; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < 3; v++) {
      _mm256_storeu_pd(c + r * stride + 4 * v, sums[r][v]);
    }
  }
}

Tile tileOfThisProcessor() { return __builtin_cpu_supports("avx512f") ? Tile{8, 24, addAvx512} : Tile{4, 12, addAvx2}; }

// `width` lines of a matrix side by side, [depth, width]: line i is from + i * line, its elements are `step` apart. Lines from `count` on
// are zeros.
void pack(const double* from, int64_t line, int64_t step, int64_t count, int64_t width, int64_t depth, double* to) {
  if (line == 1) {
    for (int64_t k = 0; k < depth; k++) {
      std::fill(std::copy_n(from + k * step, count, to + k * width), to + (k + 1) * width, 0.0);
    }
    return;
  }
  for (int64_t k = 0; k < depth; k++) {
    for (int64_t i = 0; i < width; i++) {
      to[k * width + i] = i < count ? from[i * line + k * step] : 0;
    }
  }
}

// The product of two panels, added to a part of a tile
void addPart(const Tile& tile, const double* a, const double* b, int64_t depth, double* c, int64_t stride, int64_t rows,
             int64_t columns) {
  if (rows == tile.rows && columns == tile.columns) {
    return tile.add(a, b, depth, c, stride);
  }
  double whole[8 * kMostColumns] = {};
  for (int64_t r = 0; r < rows; r++) {
    std::copy_n(c + r * stride, columns, whole + r * tile.columns);
  }
  tile.add(a, b, depth, whole, tile.columns);
  for (int64_t r = 0; r < rows; r++) {
    std::copy_n(whole + r * tile.columns, columns, c + r * stride);
  }
}

}  // namespace

bool multipliesDoubles() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

int64_t doubleProductScratchBytes() { return 8 * kDepth * (kRows + kMostColumns); }

void multiplyDoubles(const MatrixProduct& p, const ResultBlock& block, const double* a, const double* b, double* c,
                     void* scratch) {
  const Tile tile = tileOfThisProcessor();
  double* const packedB = static_cast<double*>(scratch);
  double* const packedA = packedB + kDepth * kMostColumns;
  for (int64_t k = 0; k < p.k; k += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k);
    for (int64_t first = 0; first < block.rows; first += kRows) {
      const int64_t end = std::min(block.rows, first + kRows);
      for (int64_t r = first; r < end; r += tile.rows) {
        pack(a + p.a.offsetOf(block.row + r, k), p.a.offsetOf(1, 0), p.a.offsetOf(0, 1), std::min(tile.rows, end - r),
             tile.rows, depth, packedA + (r - first) * depth);
      }
      for (int64_t j = 0; j < block.columns; j += tile.columns) {
        const int64_t columns = std::min(tile.columns, block.columns - j);
        pack(b + p.b.offsetOf(k, block.column + j), p.b.offsetOf(0, 1), p.b.offsetOf(1, 0), columns, tile.columns,
             depth, packedB);
        for (int64_t r = first; r < end; r += tile.rows) {
          addPart(tile, packedA + (r - first) * depth, packedB, depth, c + r * p.n + j, p.n,
                  std::min(tile.rows, end - r), columns);
        }
      }
    }
  }
}

}  // namespace meshfuse
