#include "device/cpu/onednn/few_rows_product.h"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>

#include "base/rounding.h"
#include "tensor/half.h"

namespace meshfuse {

namespace {

constexpr int64_t kRowsOfTile = 8;
constexpr int64_t kColumnsOfTile = 3;     // 24 of the 32 registers hold sums
constexpr int64_t kWorkOfPart = 1 << 19;  // multiplications

// More rows pay for a copy of B, and a short sum takes less time than adding up the elements of its vector.
constexpr int64_t kFewRows = 16;
constexpr int64_t kLongSum = 512;
constexpr int64_t kLeastRowsOfFloat = 8;  // the library does not copy B for fewer

// What differs between the types: how the elements in a mask become a vector, and what two vectors add to 16 sums.
struct OfFloat {
  using Element = float;
  using Vector = __m512;
  static constexpr int64_t kElements = 16;
  __attribute__((target("avx512f"), always_inline)) static inline Vector load(uint32_t mask, const Element* from) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  }
  __attribute__((target("avx512f"), always_inline)) static inline __m512 add(__m512 sums, Vector a, Vector b) {
    return _mm512_fmadd_ps(a, b, sums);
  }
  static float widened(Element e) { return e; }
};

struct OfBFloat16 {
  using Element = uint16_t;
  using Vector = __m512bh;
  static constexpr int64_t kElements = 32;
  __attribute__((target("avx512f,avx512bw,avx512bf16"), always_inline)) static inline Vector load(uint32_t mask,
                                                                                                  const Element* from) {
    return (__m512bh)_mm512_maskz_loadu_epi16(mask, from);
  }
  __attribute__((target("avx512f,avx512bw,avx512bf16"), always_inline)) static inline __m512 add(__m512 sums, Vector a,
                                                                                                 Vector b) {
    return _mm512_dpbf16_ps(sums, a, b);
  }
  static float widened(Element e) { return bfloat16ToFloat(e); }
};

// Rows of A, or columns of B: line i begins at at + i * apart.
template <class T>
struct Lines {
  const typename T::Element* at;
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
// The target is that of all types.
template <class T, int64_t kRows, int64_t kColumns>
__attribute__((target("avx512f,avx512bw,avx512bf16"))) void multiplyLines(const Lines<T>& a, const Lines<T>& b,
                                                                          int64_t depth, float* sums) {
  __m512 totals[kRows][kColumns];
#pragma GCC unroll 8
  for (int64_t r = 0; r < kRows; r++) {
#pragma GCC unroll 3
    for (int64_t c = 0; c < kColumns; c++) {
      totals[r][c] = _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < depth; k += T::kElements) {
    const int64_t rest = depth - k;
    const uint32_t mask = rest < T::kElements ? (uint32_t{1} << rest) - 1 : ~uint32_t{0};
    typename T::Vector column[kColumns];
#pragma GCC unroll 3
    for (int64_t c = 0; c < kColumns; c++) {
      column[c] = T::load(mask, b.at + c * b.apart + k);
      _mm_prefetch(b.at + (kColumns + c) * b.apart + k, _MM_HINT_T1);
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < kRows; r++) {
      const typename T::Vector row = T::load(mask, a.at + r * a.apart + k);
#pragma GCC unroll 3
      for (int64_t c = 0; c < kColumns; c++) {
        totals[r][c] = T::add(totals[r][c], row, column[c]);
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

template <class T>
using MultiplyLines = void (*)(const Lines<T>& a, const Lines<T>& b, int64_t depth, float* sums);
// By the logarithm of the rows
template <class T, int64_t kColumns>
constexpr std::array<MultiplyLines<T>, 4> kLineTilesOfColumns = {
    multiplyLines<T, 1, kColumns>, multiplyLines<T, 2, kColumns>, multiplyLines<T, 4, kColumns>,
    multiplyLines<T, 8, kColumns>};
// By columns less one
template <class T>
constexpr std::array<std::array<MultiplyLines<T>, 4>, kColumnsOfTile> kLineTiles = {
    kLineTilesOfColumns<T, 1>, kLineTilesOfColumns<T, 2>, kLineTilesOfColumns<T, 3>};

template <class T>
void multiplyRows(const MatrixProduct& p, int64_t column, int64_t columns, const typename T::Element* a,
                  const typename T::Element* b, const typename T::Element* bias, void* result) {
  float sums[kRowsOfTile * kColumnsOfTile];
  for (int64_t j = column; j < column + columns; j += kColumnsOfTile) {
    const int64_t together = std::min(kColumnsOfTile, column + columns - j);
    for (int64_t i = 0; i < p.m;) {
      const int64_t rows = powerAtMost(std::min(kRowsOfTile, p.m - i));
      kLineTiles<T>[together - 1][std::countr_zero<uint64_t>(rows)]({a + i * p.a.leading, p.a.leading},
                                                                    {b + j * p.b.leading, p.b.leading}, p.k, sums);
      for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < together; c++) {
          const int64_t at = (i + r) * p.n + j + c;
          const float sum = sums[r * together + c] + (bias != nullptr ? T::widened(bias[j + c]) : 0);
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

}  // namespace

bool multipliesFewRows(const MatrixProduct& p) {
  const bool ofFloat = p.operands == DataType::Float && p.m >= kLeastRowsOfFloat;
  const bool ofBFloat16 = p.operands == DataType::BFloat16 && __builtin_cpu_supports("avx512bf16");
  return (ofFloat || ofBFloat16) && __builtin_cpu_supports("avx512bw") && p.m <= kFewRows && p.k >= kLongSum &&
         !p.a.transposed && p.b.transposed;
}

int64_t columnsOfFewRows(const MatrixProduct& p) {
  return roundUp(divideUp(kWorkOfPart, p.m * p.k), 8 * kColumnsOfTile);
}

void multiplyFewRows(const MatrixProduct& p, int64_t column, int64_t columns, const void* a, const void* b,
                     const void* bias, void* result) {
  const auto multiply = [&]<class T>(T) {
    using Element = typename T::Element;
    multiplyRows<T>(p, column, columns, static_cast<const Element*>(a), static_cast<const Element*>(b),
                    static_cast<const Element*>(bias), result);
  };
  p.operands == DataType::Float ? multiply(OfFloat{}) : multiply(OfBFloat16{});
}

}  // namespace meshfuse
