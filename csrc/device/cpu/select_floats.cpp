#include "device/cpu/select_floats.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>

#include "base/rounding.h"

namespace meshfuse {

namespace {

constexpr int64_t kLanes = 16;                  // floats of a vector
constexpr int64_t kColumns = 4;                 // vectors whose best elements are found together
constexpr int64_t kStripe = kLanes * kColumns;  // elements of a row, one of each group
constexpr int64_t kMostChunks = 8;              // groups below each other, so at most kMostChunks * kStripe groups
constexpr int64_t kGroupsOfWanted = 4;          // at least so many groups for each wanted element
constexpr int64_t kAhead = 1024;                // elements that are fetched ahead

int64_t chunksOf(const FloatSelection& s) { return divideUp(kGroupsOfWanted * s.wanted, kStripe); }

// Unsigned numbers in the order of the floats, NaN after all others; both zeros have one.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")]] inline __m512i keysOfFloats(__m512 x, __m512i flip) {
  const __m512i bits = _mm512_castps_si512(_mm512_add_ps(x, _mm512_setzero_ps()));
  const __m512i turned = _mm512_or_si512(_mm512_srai_epi32(bits, 31), _mm512_set1_epi32(INT32_MIN));
  const __m512i key = _mm512_xor_si512(bits, turned);
  const __mmask16 isNaN = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_xor_si512(_mm512_mask_mov_epi32(key, isNaN, _mm512_set1_epi32(-1)), flip);
}

// The position among the numbers of the one that exactly n - 1 precede; of equal ones any.
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")]] inline int64_t placeOfNth(const __m512i* keys,
                                                                                       int64_t vectors, int64_t n) {
  __m512i all = keys[0];
  __m512i any = keys[0];
  for (int64_t k = 1; k < vectors; k++) {
    all = _mm512_and_si512(all, keys[k]);
    any = _mm512_or_si512(any, keys[k]);
  }
  alignas(64) uint32_t lanes[2][kLanes];
  _mm512_store_si512(lanes[0], all);
  _mm512_store_si512(lanes[1], any);
  const uint32_t common = std::reduce(lanes[0], lanes[0] + kLanes, ~uint32_t{0}, std::bit_and<>());
  const uint32_t differing = common ^ std::reduce(lanes[1], lanes[1] + kLanes, uint32_t{0}, std::bit_or<>());
  const int highest = 31 - std::countl_zero(differing | 1);
  uint32_t found = highest == 31 ? 0 : common >> (highest + 1) << (highest + 1);
  for (int bit = highest; bit >= 0; bit--) {
    const uint32_t most = found | ((uint32_t{1} << bit) - 1);
    const __m512i bound = _mm512_set1_epi32(static_cast<int>(most));
    int64_t below = 0;
    for (int64_t k = 0; k < vectors; k++) {
      below += std::popcount(static_cast<uint32_t>(_mm512_cmple_epu32_mask(keys[k], bound)));
    }
    found |= below < n ? uint32_t{1} << bit : 0;
  }
  for (int64_t k = 0; k < vectors; k++) {
    const uint32_t equal = _mm512_cmpeq_epi32_mask(keys[k], _mm512_set1_epi32(static_cast<int>(found)));
    if (equal != 0) {
      return k * kLanes + std::countr_zero(equal);
    }
  }
  return 0;
}

template <bool kDescending>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")]] inline __m512 betterOf(__m512 a, __m512 b) {
  return kDescending ? _mm512_max_ps(a, b) : _mm512_min_ps(a, b);
}

// An element of the line that at least wanted - 1 others precede or equal. Where a NaN was met, a group's element may be another than its
// best: it is of the line all the same.
template <bool kDescending>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")]] float boundOfBest(const FloatSelection& s,
                                                                               const float* line) {
  alignas(64) float best[kMostChunks * kStripe];
  const int64_t rows = s.extent / kStripe;
  const int64_t chunks = chunksOf(s);
  for (int64_t c = 0; c < chunks; c++) {
    int64_t row = rows * c / chunks;
    __m512 of[kColumns];
    for (int64_t i = 0; i < kColumns; i++) {
      of[i] = _mm512_loadu_ps(line + row * kStripe + i * kLanes);
    }
    for (row++; row < rows * (c + 1) / chunks; row++) {
      const float* at = line + row * kStripe;
      for (int64_t i = 0; i < kColumns; i++) {
        of[i] = betterOf<kDescending>(of[i], _mm512_loadu_ps(at + i * kLanes));
        __builtin_prefetch(line + std::min(row * kStripe + i * kLanes + kAhead, s.extent - 1));
      }
    }
    for (int64_t i = 0; i < kColumns; i++) {
      _mm512_store_ps(best + c * kStripe + i * kLanes, of[i]);
    }
  }
  __m512i keys[kMostChunks * kColumns];
  for (int64_t k = 0; k < chunks * kColumns; k++) {
    keys[k] = keysOfFloats(_mm512_load_ps(best + k * kLanes), _mm512_set1_epi32(kDescending ? -1 : 0));
  }
  return best[placeOfNth(keys, chunks * kColumns, s.wanted)];
}

// Without a branch that depends on the elements: mispredicted ones would take longer than the rest.
template <bool kDescending>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")]] int64_t placesUpTo(const FloatSelection& s, float bound,
                                                                                const float* line, const float* next,
                                                                                uint32_t* places) {
  const __m512 least = _mm512_set1_ps(bound);
  const auto isGood = [least](__m512 x) __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt"))) {
    return kDescending ? _mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ) : _mm512_cmp_ps_mask(x, least, _CMP_LE_OQ);
  };
  __m512i numbers = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  int64_t count = 0;
  int64_t j = 0;
  for (; j + kLanes <= s.extent; j += kLanes) {
    const __mmask16 good = isGood(_mm512_loadu_ps(line + j));
    __builtin_prefetch(next + j);
    _mm512_storeu_si512(places + count, _mm512_maskz_compress_epi32(good, numbers));
    count += std::popcount(static_cast<uint32_t>(good));
    numbers = _mm512_add_epi32(numbers, _mm512_set1_epi32(kLanes));
  }
  if (j < s.extent) {
    const auto inside = static_cast<__mmask16>((1U << (s.extent - j)) - 1);
    const auto good = static_cast<__mmask16>(isGood(_mm512_maskz_loadu_ps(inside, line + j)) & inside);
    _mm512_storeu_si512(places + count, _mm512_maskz_compress_epi32(good, numbers));
    count += std::popcount(static_cast<uint32_t>(good));
  }
  return count;
}

template <bool kDescending>
int64_t select(const FloatSelection& s, const float* line, const float* next, uint32_t* places) {
  const float bound = boundOfBest<kDescending>(s, line);
  return std::isnan(bound) ? -1 : placesUpTo<kDescending>(s, bound, line, next, places);
}

}  // namespace

bool canSelectFloats(const FloatSelection& s) {
  const bool isLong =
      s.wanted > 0 && s.extent / kStripe >= 4 * chunksOf(s) && chunksOf(s) <= kMostChunks && s.extent < INT32_MAX;
  return isLong && __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("popcnt") != 0;
}

int64_t selectFloats(const FloatSelection& s, const float* line, const float* next, uint32_t* places) {
  return s.descending ? select<true>(s, line, next, places) : select<false>(s, line, next, places);
}

}  // namespace meshfuse
