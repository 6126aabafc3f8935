// Sums of Float from the beginnings of lines up to each element, with vectors of 512 bits.
//
// Eight elements are added in a tree, in Double, and what came before them is added last:
//
//   a b c d ..  ->  a, a+b, b+c, c+d, ..  ->  a, a+b, a+(b+c), (a+b)+(c+d), ..  ->  of eight, plus the sum of all before
//
// An addition of one element after the other takes a load, an addition and a store for each of them.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

namespace meshfuse {

[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] inline __m512d sumsOfEight(__m512d x) {
  const __m512i zero = _mm512_setzero_si512();
  const auto movedUp = [zero](__m512d v, auto by) __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) {
    return _mm512_castsi512_pd(_mm512_maskz_alignr_epi64(0xff, _mm512_castpd_si512(v), zero, 8 - decltype(by)::value));
  };
  x = _mm512_add_pd(x, movedUp(x, std::integral_constant<int, 1>()));
  x = _mm512_add_pd(x, movedUp(x, std::integral_constant<int, 2>()));
  return _mm512_add_pd(x, movedUp(x, std::integral_constant<int, 4>()));
}

// Let n be `extent` rounded down to a multiple of 16. For each line k writes the running sums of from[k][0..n-1] to to[k], and returns n.
// sums[k]: on entry the sum before the first element, on return the sum up to element n-1. Calls fetch(k, j) before the 16 elements of line
// k from j on. `past`: the stores bypass the caches; to[k] must then begin at a cache line.
template <int64_t kLines, class Fetch>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] int64_t sumFloats(const float* const* from, float* const* to,
                                                                        double* sums, int64_t extent, bool past,
                                                                        const Fetch& fetch) {
  constexpr int64_t kLanes = 16;
  const __m512i last = _mm512_set1_epi64(7);
  __m512d before[kLines];
  for (int64_t k = 0; k < kLines; k++) {
    before[k] = _mm512_set1_pd(sums[k]);
  }
  int64_t j = 0;
  for (; j + kLanes <= extent; j += kLanes) {
#pragma GCC unroll 8
    for (int64_t k = 0; k < kLines; k++) {
      fetch(k, j);
      const __m512d low = sumsOfEight(_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(from[k] + j)));
      const __m512d high = sumsOfEight(_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(from[k] + j + 8)));
      const __m512d first = _mm512_add_pd(low, before[k]);
      const __m512d second = _mm512_add_pd(high, _mm512_maskz_permutexvar_pd(0xff, last, first));
      before[k] = _mm512_maskz_permutexvar_pd(0xff, last, second);
      const __m256 lower = _mm512_maskz_cvtpd_ps(0xff, first);
      const __m256 upper = _mm512_maskz_cvtpd_ps(0xff, second);
      if (past) {
        _mm256_stream_ps(to[k] + j, lower);
        _mm256_stream_ps(to[k] + j + 8, upper);
      } else {
        _mm256_storeu_ps(to[k] + j, lower);
        _mm256_storeu_ps(to[k] + j + 8, upper);
      }
    }
  }
  for (int64_t k = 0; k < kLines; k++) {
    sums[k] = _mm512_cvtsd_f64(before[k]);
  }
  return j;
}

}  // namespace meshfuse
