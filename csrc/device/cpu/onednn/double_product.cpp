#include "device/cpu/onednn/double_product.h"

#include <immintrin.h>

#include <algorithm>

#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr int64_t kDepth = 256;        // of k: a panel of B stays in the first cache
constexpr int64_t kRows = 256;         // rows of A stay in the second cache
constexpr int64_t kVectorsOfTile = 3;  // of a row of a tile
constexpr int64_t kMostColumns = 24;

// Rows of A, or of a packed panel of it: element k of row r is at[r * row + k * column].
struct Rows {
  const double* at;
  int64_t row, column;
};

// A tile of C whose sums are in registers
struct Tile {
  // Adds to C, whose rows are `stride` apart, the product of rows of A and a panel of B, [depth, columns].
  using Add = void (*)(const Rows& a, const double* b, int64_t depth, double* c, int64_t stride);

  int64_t rows, vector;     // elements
  Add add[kVectorsOfTile];  // by the vectors of a row less one

  int64_t columns() const { return kVectorsOfTile * vector; }
};

template <int64_t kVectors>
__attribute__((target("avx512f"))) void addAvx512(const Rows& a, const double* b, int64_t depth, double* c,
                                                  int64_t stride) {
  __m512d sums[8][kVectors];
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      sums[r][v] = _mm512_loadu_pd(c + r * stride + 8 * v);
    }
  }
  const double* upper = a.at;  // rows from two addresses: fewer registers for multiples of the distance
  const double* lower = a.at + 4 * a.row;
  for (int64_t k = 0; k < depth; k++, upper += a.column, lower += a.column, b += 8 * kVectors) {
    __m512d row[kVectors];
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      row[v] = _mm512_load_pd(b + 8 * v);
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < 8; r++) {
      const __m512d factor = _mm512_set1_pd(r < 4 ? upper[r * a.row] : lower[(r - 4) * a.row]);
#pragma GCC unroll 3
      for (int64_t v = 0; v < kVectors; v++) {
        sums[r][v] = _mm512_fmadd_pd(factor, row[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < 8; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      _mm512_storeu_pd(c + r * stride + 8 * v, sums[r][v]);
    }
  }
}

template <int64_t kVectors>
__attribute__((target("avx2,fma"))) void addAvx2(const Rows& a, const double* b, int64_t depth, double* c,
                                                 int64_t stride) {
  __m256d sums[4][kVectors];
#pragma GCC unroll 4
  for (int64_t r = 0; r < 4; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      sums[r][v] = _mm256_loadu_pd(c + r * stride + 4 * v);
    }
  }
  const double* at = a.at;
  for (int64_t k = 0; k < depth; k++, at += a.column, b += 4 * kVectors) {
    __m256d row[kVectors];
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      row[v] = _mm256_load_pd(b + 4 * v);
    }
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; r++) {
      const __m256d factor = _mm256_broadcast_sd(at + r * a.row);
#pragma GCC unroll 3
      for (int64_t v = 0; v < kVectors; v++) {
        sums[r][v] = _mm256_fmadd_pd(factor, row[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 4
  for (int64_t r = 0; r < 4; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      _mm256_storeu_pd(c + r * stride + 4 * v, sums[r][v]);
    }
  }
}

Tile tileOfThisProcessor() {
  return __builtin_cpu_supports("avx512f") ? Tile{8, 8, {addAvx512<1>, addAvx512<2>, addAvx512<3>}}
                                           : Tile{4, 4, {addAvx2<1>, addAvx2<2>, addAvx2<3>}};
}

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

// The product of rows of A and a panel of B, added to a part of a tile. The panel has whole vectors.
void addPart(const Tile& tile, const Rows& a, const double* b, int64_t depth, double* c, int64_t stride, int64_t rows,
             int64_t columns) {
  const int64_t vectors = divideUp(columns, tile.vector);
  if (rows == tile.rows && columns == vectors * tile.vector) {
    return tile.add[vectors - 1](a, b, depth, c, stride);
  }
  double whole[8 * kMostColumns] = {};
  for (int64_t r = 0; r < rows; r++) {
    std::copy_n(c + r * stride, columns, whole + r * tile.columns());
  }
  tile.add[vectors - 1](a, b, depth, whole, tile.columns());
  for (int64_t r = 0; r < rows; r++) {
    std::copy_n(whole + r * tile.columns(), columns, c + r * stride);
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
      // Rows are read where they lie, but those of a transposed A, and the last ones: a tile has more than are left.
      const auto isPacked = [&](int64_t r) { return p.a.transposed || r + tile.rows > end; };
      const auto from = [&](int64_t r) { return a + p.a.offsetOf(block.row + r, k); };
      for (int64_t r = first; r < end; r += tile.rows) {
        if (isPacked(r)) {
          pack(from(r), p.a.offsetOf(1, 0), p.a.offsetOf(0, 1), std::min(tile.rows, end - r), tile.rows, depth,
               packedA + (r - first) * depth);
        }
      }
      for (int64_t j = 0; j < block.columns; j += tile.columns()) {
        const int64_t columns = std::min(tile.columns(), block.columns - j);
        pack(b + p.b.offsetOf(k, block.column + j), p.b.offsetOf(0, 1), p.b.offsetOf(1, 0), columns,
             roundUp(columns, tile.vector), depth, packedB);
        for (int64_t r = first; r < end; r += tile.rows) {
          const Rows rows =
              isPacked(r) ? Rows{packedA + (r - first) * depth, 1, tile.rows} : Rows{from(r), p.a.leading, 1};
          addPart(tile, rows, packedB, depth, c + r * p.n + j, p.n, std::min(tile.rows, end - r), columns);
        }
      }
    }
  }
}

}  // namespace meshfuse
