#include "device/cpu/onednn/float_product.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr int64_t kVector = 16;
constexpr int64_t kMostRows = 8;      // of a tile
constexpr int64_t kMostVectors = 3;   // of a row of a tile: 24 of the 32 registers hold sums
constexpr int64_t kPanelDepth = 128;  // of k: a panel of B stays in the first cache

// Fewer rows do not pay for the copy of B, and fewer columns leave lanes of a vector without work. Panels are not shared by tasks, so many rows or
// columns are left to the library.
constexpr int64_t kLeastRowsOfBlock = 8;
constexpr int64_t kMostOfBlock = 128;
constexpr int64_t kFewRowsOfBlock = 32;  // which may have more columns
constexpr int64_t kMostColumnsOfFewRows = 384;
constexpr int64_t kLeastRowsOfMostColumns = 16;  // fewer do not pay for the copy of so many columns
constexpr int64_t kMostColumnsOfFewerRows = 256;

// A matrix whose element (i, j) is at[i * row + j * column]
struct Strided {
  const float* at;
  int64_t row, column;
};

// Adds to rows of C, `stride` apart, the product of A and a panel of B; of the last vector of each row, the elements in `last`.
template <int64_t kRows, int64_t kVectors>
__attribute__((target("avx512f"))) void addTile(const Strided& a, const Strided& b, int64_t depth, float* c,
                                                int64_t stride, __mmask16 last) {
  const auto maskOf = [last](int64_t v) { return v == kVectors - 1 ? last : static_cast<__mmask16>(0xffff); };
  __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      sums[r][v] = _mm512_maskz_loadu_ps(maskOf(v), c + r * stride + kVector * v);
    }
  }
  const float* upper = a.at;  // rows from two addresses: fewer registers for multiples of the stride
  const float* lower = a.at + 4 * a.row;
  const float* panel = b.at;
  for (int64_t k = 0; k < depth; k++, upper += a.column, lower += a.column, panel += b.row) {
    __m512 row[kVectors];
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      row[v] = _mm512_loadu_ps(panel + kVector * v);
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; r++) {
      const __m512 factor = _mm512_set1_ps(r < 4 ? upper[r * a.row] : lower[(r - 4) * a.row]);
#pragma GCC unroll 3
      for (int64_t v = 0; v < kVectors; v++) {
        sums[r][v] = _mm512_fmadd_ps(factor, row[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; r++) {
#pragma GCC unroll 3
    for (int64_t v = 0; v < kVectors; v++) {
      _mm512_mask_storeu_ps(c + r * stride + kVector * v, maskOf(v), sums[r][v]);
    }
  }
}

using AddTile = void (*)(const Strided& a, const Strided& b, int64_t depth, float* c, int64_t stride, __mmask16 last);

template <int64_t kRows>
constexpr std::array<AddTile, kMostVectors> kTilesOfRows = {addTile<kRows, 1>, addTile<kRows, 2>, addTile<kRows, 3>};
// By the logarithm of the rows, and by vectors less one
constexpr std::array<std::array<AddTile, kMostVectors>, 4> kTiles = {kTilesOfRows<1>, kTilesOfRows<2>, kTilesOfRows<4>,
                                                                     kTilesOfRows<8>};

// 16 lines of 16 elements, `line` apart, to 16 lines that are `width` apart. The instructions have masks of all elements because those without
// make a false warning in GCC 12.
__attribute__((target("avx512f"))) void transpose(const float* from, int64_t line, float* to, int64_t width) {
  constexpr __mmask16 kAll = 0xffff;
  constexpr __mmask8 kPairs = 0xff;
#pragma GCC unroll 4
  for (int64_t part = 0; part < kVector; part += 4) {
    __m512 four[4];  // of lines i, i + 4, i + 8, i + 12, four elements each
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; i++) {
      const float* at = from + i * line + part;
      four[i] = _mm512_zextps128_ps512(_mm_loadu_ps(at));
      four[i] = _mm512_maskz_insertf32x4(kAll, four[i], _mm_loadu_ps(at + 4 * line), 1);
      four[i] = _mm512_maskz_insertf32x4(kAll, four[i], _mm_loadu_ps(at + 8 * line), 2);
      four[i] = _mm512_maskz_insertf32x4(kAll, four[i], _mm_loadu_ps(at + 12 * line), 3);
    }
    const __m512d pairs[4] = {_mm512_castps_pd(_mm512_maskz_unpacklo_ps(kAll, four[0], four[1])),
                              _mm512_castps_pd(_mm512_maskz_unpacklo_ps(kAll, four[2], four[3])),
                              _mm512_castps_pd(_mm512_maskz_unpackhi_ps(kAll, four[0], four[1])),
                              _mm512_castps_pd(_mm512_maskz_unpackhi_ps(kAll, four[2], four[3]))};
#pragma GCC unroll 2
    for (int64_t i = 0; i < 2; i++) {
      float* out = to + (part + 2 * i) * width;
      _mm512_storeu_pd(out, _mm512_maskz_unpacklo_pd(kPairs, pairs[2 * i], pairs[2 * i + 1]));
      _mm512_storeu_pd(out + width, _mm512_maskz_unpackhi_pd(kPairs, pairs[2 * i], pairs[2 * i + 1]));
    }
  }
}

// [depth, columns] of B to rows of whole vectors side by side. Columns from `columns` on are zeros.
void packFloats(const Strided& b, int64_t depth, int64_t columns, float* to) {
  const int64_t width = roundUp(columns, kVector);
  for (int64_t k = 0; k < depth; k += kVector) {
    for (int64_t j = 0; j < width; j += kVector) {
      float* out = to + k * width + j;
      if (b.row == 1 && k + kVector <= depth && j + kVector <= columns) {
        transpose(b.at + k + j * b.column, b.column, out, width);
        continue;
      }
      for (int64_t x = k; x < std::min(depth, k + kVector); x++, out += width) {
        for (int64_t i = 0; i < kVector; i++) {
          out[i] = j + i < columns ? b.at[x * b.row + (j + i) * b.column] : 0;
        }
      }
    }
  }
}

}  // namespace

bool multipliesFloats(const ResultBlock& block) {
  const int64_t mostColumns = block.rows > kFewRowsOfBlock           ? kMostOfBlock
                              : block.rows < kLeastRowsOfMostColumns ? kMostColumnsOfFewerRows
                                                                     : kMostColumnsOfFewRows;
  return __builtin_cpu_supports("avx512f") && block.rows >= kLeastRowsOfBlock && block.rows <= kMostOfBlock &&
         block.columns >= kVector && block.columns <= mostColumns;
}

void multiplyFloats(const MatrixProduct& p, const ResultBlock& block, const float* a, const float* b, float* c) {
  const int64_t vectors = divideUp(block.columns, kVector);
  const int64_t width = divideUp(vectors, divideUp(vectors, kMostVectors)) * kVector;  // panels of about equal width
  alignas(64) float packed[kPanelDepth * kMostVectors * kVector];
  for (int64_t k = 0; k < p.k; k += kPanelDepth) {
    const int64_t depth = std::min(kPanelDepth, p.k - k);
    for (int64_t j = 0; j < block.columns; j += width) {
      const int64_t columns = std::min(width, block.columns - j);
      Strided panel{b + p.b.offsetOf(k, block.column + j), p.b.offsetOf(1, 0), p.b.offsetOf(0, 1)};
      const int64_t rest = columns % kVector;
      if (p.b.transposed || rest != 0) {
        packFloats(panel, depth, columns, packed);
        panel = {packed, roundUp(columns, kVector), 1};
      }
      const auto last = static_cast<__mmask16>(rest == 0 ? 0xffff : (1 << rest) - 1);
      for (int64_t r = 0; r < block.rows;) {
        const int64_t rows = powerAtMost(std::min(kMostRows, block.rows - r));
        const Strided part{a + p.a.offsetOf(block.row + r, k), p.a.offsetOf(1, 0), p.a.offsetOf(0, 1)};
        kTiles[std::countr_zero<uint64_t>(rows)][divideUp(columns, kVector) - 1](part, panel, depth, c + r * p.n + j,
                                                                                 p.n, last);
        r += rows;
      }
    }
  }
}

}  // namespace meshfuse
