#include "device/cpu/onednn/bfloat16_product.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/rounding.h"
#include "tensor/half.h"

namespace meshfuse {

namespace {

constexpr int64_t kElements = 32;  // of a vector
constexpr int64_t kRowsOfTile = 8;
constexpr int64_t kColumnsOfTile = 3;     // 24 of the 32 registers hold sums
constexpr int64_t kWorkOfPart = 1 << 19;  // multiplications

// More rows pay for the library's copy of B, and a short sum takes less time than adding up the elements of its vector.
constexpr int64_t kFewRows = 16;
constexpr int64_t kLongSum = 512;

// Rows of A, or columns of B: line i begins at at + i * apart.
struct Lines {
  const uint16_t* at;
  int64_t apart;
};

// In halves. The instructions have masks of all elements because those without make a false warning in GCC 12.
__attribute__((target("avx512f"))) inline float sumOfElements(__m512 v) {
  const __m512d pairs = _mm512_castps_pd(v);
  const __m256 lower = _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xff, pairs, 0));
  const __m256 upper = _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xff, pairs, 1));
  const __m256 eight = _mm256_add_ps(lower, upper);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// sums[r][c]: the product of line r of a and line c of b. The lines of b that follow are fetched: a processor does not foresee where they begin.
template <int64_t kRows, int64_t kColumns>
__attribute__((target("avx512f,avx512bw,avx512bf16"))) void multiplyLines(const Lines& a, const Lines& b, int64_t depth,
                                                                          float* sums) {
  __m512 totals[kRows][kColumns];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; r++) {
#pragma GCC unroll 3
    for (int64_t c = 0; c < kColumns; c++) {
      totals[r][c] = _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < depth; k += kElements) {
    const int64_t rest = depth - k;
    const auto mask = static_cast<__mmask32>(rest < kElements ? (uint32_t{1} << rest) - 1 : ~uint32_t{0});
    const auto load = [mask](const uint16_t* from) __attribute__((target("avx512f,avx512bw,avx512bf16"))) {
      return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
    };
    __m512bh column[kColumns];
#pragma GCC unroll 3
    for (int64_t c = 0; c < kColumns; c++) {
      column[c] = load(b.at + c * b.apart + k);
      _mm_prefetch(b.at + (kColumns + c) * b.apart + k, _MM_HINT_T1);
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; r++) {
      const __m512bh row = load(a.at + r * a.apart + k);
#pragma GCC unroll 3
      for (int64_t c = 0; c < kColumns; c++) {
        totals[r][c] = _mm512_dpbf16_ps(totals[r][c], row, column[c]);
      }
    }
  }
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; r++) {
#pragma GCC unroll 3
    for (int64_t c = 0; c < kColumns; c++) {
      sums[r * kColumns + c] = sumOfElements(totals[r][c]);
    }
  }
}

using DotTile = void (*)(const Lines& a, const Lines& b, int64_t depth, float* sums);
// By the logarithm of the rows, and by columns less one
template <int64_t kColumns>
constexpr std::array<DotTile, 4> kDotTilesOfColumns = {multiplyLines<1, kColumns>, multiplyLines<2, kColumns>,
                                                       multiplyLines<4, kColumns>, multiplyLines<8, kColumns>};
constexpr std::array<std::array<DotTile, 4>, kColumnsOfTile> kDotTiles = {kDotTilesOfColumns<1>, kDotTilesOfColumns<2>,
                                                                          kDotTilesOfColumns<3>};

}  // namespace

bool multipliesBFloat16(const MatrixProduct& p) {
  const bool hasInstructions = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512bf16");
  return hasInstructions && p.operands == DataType::BFloat16 && p.m <= kFewRows && p.k >= kLongSum && !p.a.transposed &&
         p.b.transposed;
}

int64_t columnsOfBFloat16(const MatrixProduct& p) {
  return roundUp(divideUp(kWorkOfPart, p.m * p.k), 8 * kColumnsOfTile);
}

void multiplyBFloat16(const MatrixProduct& p, int64_t column, int64_t columns, const uint16_t* a, const uint16_t* b,
                      const uint16_t* bias, void* result) {
  float sums[kRowsOfTile * kColumnsOfTile];
  for (int64_t j = column; j < column + columns; j += kColumnsOfTile) {
    const int64_t together = std::min(kColumnsOfTile, column + columns - j);
    for (int64_t i = 0; i < p.m;) {
      const int64_t rows = powerAtMost(std::min(kRowsOfTile, p.m - i));
      kDotTiles[together - 1][std::countr_zero<uint64_t>(rows)]({a + i * p.a.leading, p.a.leading},
                                                                {b + j * p.b.leading, p.b.leading}, p.k, sums);
      for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < together; c++) {
          const int64_t at = (i + r) * p.n + j + c;
          const float sum = sums[r * together + c] + (bias != nullptr ? bfloat16ToFloat(bias[j + c]) : 0);
          if (p.result == DataType::Float) {
            static_cast<float*>(result)[at] = sum;
          } else {
            static_cast<uint16_t*>(result)[at] = floatToBFloat16(sum);
          }
        }
      }
      i += rows;
    }
  }
}

}  // namespace meshfuse
