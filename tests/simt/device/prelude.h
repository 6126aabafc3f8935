// The host's version of everything that generated kernels take from the device: qualifiers, intrinsics, and the
// sections of runtime/cuda marked `device`. The other sections and the kernels themselves are compiled as they are.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "engine.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)

// -- intrinsics -------------------------------------------------------------------------------------------------------
inline float __uint_as_float(unsigned u) { return __builtin_bit_cast(float, u); }
inline unsigned __float_as_uint(float f) { return __builtin_bit_cast(unsigned, f); }
inline float __int_as_float(int i) { return __builtin_bit_cast(float, i); }
inline float __int_as_float(unsigned i) { return __builtin_bit_cast(float, i); }
inline int __float_as_int(float f) { return __builtin_bit_cast(int, f); }
inline double __longlong_as_double(unsigned long long i) { return __builtin_bit_cast(double, i); }
inline double __longlong_as_double(long long i) { return __builtin_bit_cast(double, i); }
inline int __double2loint(double d) { return (int)__builtin_bit_cast(unsigned long long, d); }
inline int __double2hiint(double d) { return (int)(__builtin_bit_cast(unsigned long long, d) >> 32); }
inline double __hiloint2double(int hi, int lo) {
  return __builtin_bit_cast(double, (unsigned long long)(unsigned)hi << 32 | (unsigned)lo);
}
inline unsigned long long atomicExch(unsigned long long* at, unsigned long long value) {
  const unsigned long long old = *at;
  *at = value;
  return old;
}
namespace simt {
constexpr float kSmallestNormal = 0x1p-126f;
inline float flushed(float x) { return std::fabs(x) < kSmallestNormal ? std::copysign(0.f, x) : x; }
// The worst result of an instruction that may be `ulps` units of the last place away from the correctly rounded one. The run's pattern and
// the operands choose the side: the same operands give the same result, as on a device.
inline float approximate(double exact, int ulps, float a, float b = 0) {
  const float rounded = (float)exact;
  if (rounded == 0 || !std::isfinite(rounded)) return rounded;
  uint64_t mixed = ((uint64_t)__float_as_uint(a) << 32 | __float_as_uint(b)) ^ errorPattern * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
  const int size = __float_as_int(rounded) & 0x7fffffff;
  const int moved = (mixed ^ mixed << 31) >> 63 ? std::min(size + ulps, 0x7f7fffff) : std::max(size - ulps, 0);
  return std::copysign(__int_as_float(moved), rounded);
}
}  // namespace simt
inline float rsqrtf(float x) { return simt::approximate(1.0 / std::sqrt((double)x), 2, x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
// Bisection on erf or erfc, then Newton: slow and independent of the fit that the device uses.
inline double erfinv(double y) {
  if (!(std::fabs(y) <= 1)) return NAN;
  if (std::fabs(y) == 1) return y * INFINITY;
  double low = 0, high = 6.5;
  const double a = std::fabs(y);
  for (int i = 0; i < 60; ++i) {
    const double mid = (low + high) / 2;
    (a > 0.5 ? std::erfc(mid) > 1 - a : std::erf(mid) < a) ? low = mid : high = mid;
  }
  double x = (low + high) / 2;
  for (int i = 0; i < 2; ++i) {
    const double error = a > 0.5 ? (1 - a) - std::erfc(x) : std::erf(x) - a;
    x -= error / (M_2_SQRTPI * std::exp(-x * x));
  }
  return std::copysign(x, y);
}
inline float erfinvf(float y) { return (float)erfinv(y); }

// -- half.cuh ---------------------------------------------------------------------------------------------------------
inline float f16ToFloat(unsigned bits) {
  const unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ffu;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
  const float magnitude =
      exponent == 0 ? std::ldexp((float)fraction, -24) : std::ldexp((float)(fraction | 0x400u), (int)exponent - 25);
  return sign ? -magnitude : magnitude;
}
namespace simt {
inline unsigned toBf16(float value) {
  const unsigned bits = __float_as_uint(value);
  if (value != value) return 0x7fffu;  // what cvt gives
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
inline unsigned toF16(float value) {
  const unsigned sign = __float_as_uint(value) >> 16 & 0x8000u;
  if (value != value) return 0x7fffu;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.f) return sign | 0x7c00u;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int unit = exponent - 11 < -24 ? -24 : exponent - 11;  // of the last place
  const unsigned steps = (unsigned)std::nearbyint(std::ldexp((double)magnitude, -unit));
  if (unit == -24) return sign | steps;  // a carry into 0x400 is the smallest normal number
  return sign | ((unsigned)(unit + 25) << 10) + (steps - 0x400u);
}
// A sum that is rounded to 16 bits next, which gives the exact sum rounded once: if a float cannot hold it, the last digit is odd.
inline float oddSum(float a, float b) {
  const float sum = a + b, part = sum - a;
  const float rest = (a - (sum - part)) + (b - part);
  const bool isOdd = __float_as_uint(sum) & 1;
  return rest == 0 || isOdd || !std::isfinite(sum) ? sum : std::nextafter(sum, std::copysign(INFINITY, rest));
}
}  // namespace simt
inline unsigned packBf16(float low, float high) { return simt::toBf16(low) | simt::toBf16(high) << 16; }
inline unsigned packF16(float low, float high) { return simt::toF16(low) | simt::toF16(high) << 16; }
// Kernels multiply by 1 and -1 only.
inline unsigned fmaPairBf16(unsigned a, unsigned b, unsigned c) {
  const auto low = [](unsigned word) { return __uint_as_float(word << 16); };
  const auto high = [](unsigned word) { return __uint_as_float(word & 0xffff0000u); };
  return packBf16(simt::oddSum(low(a) * low(b), low(c)), simt::oddSum(high(a) * high(b), high(c)));
}
inline unsigned fmaPairF16(unsigned a, unsigned b, unsigned c) {
  const auto low = [](unsigned word) { return f16ToFloat(word & 0xffffu); };
  const auto high = [](unsigned word) { return f16ToFloat(word >> 16); };
  return packF16(simt::oddSum(low(a) * low(b), low(c)), simt::oddSum(high(a) * high(b), high(c)));
}

// -- memory.cuh -------------------------------------------------------------------------------------------------------
namespace simt {
template <class R, class T>
void copyElements(R* d, const T* s, int n) {
  std::memcpy(d, s, sizeof(T) * n);
}
inline void copyElements(bool* d, const unsigned char* s, int n) {
  for (int i = 0; i < n; ++i) d[i] = s[i] != 0;
}
inline void touchVector(const void* p, int bytes, int piece, Touch touch, int site) {
  for (int at = 0; at < bytes; at += piece) global((const char*)p + at, bytes < piece ? bytes : piece, touch, site);
}
}  // namespace simt
template <int A, class T>
T loadOne(const T* p, int site) {
  simt::global(p, sizeof(T), (simt::Touch)A, site);
  return *p;
}
template <int A, class T>
void storeOne(T* p, T value, int site) {
  simt::global(p, sizeof(T), simt::Touch::Store, site);
  *p = value;
}
template <int V, int A, int B = 16, class R, class T>
void loadVector(R* d, const T* p, int site) {
  simt::touchVector(p, V * sizeof(T), B, (simt::Touch)A, site);
  simt::copyElements(d, p, V);
}
template <int V, int A, int B = 16, class T, class R>
void storeVector(T* p, const R* s, int site) {
  simt::touchVector(p, V * sizeof(T), B, simt::Touch::Store, site);
  std::memcpy((void*)p, s, V * sizeof(T));
}

// -- shared.cuh, cluster.cuh ------------------------------------------------------------------------------------------
template <class T>
void sharedStore(int offset, T value, int site) {
  std::memcpy(simt::shared(offset, sizeof(T), true, site), &value, sizeof(T));
}
template <class T>
T sharedLoad(int offset, int site) {
  T value;
  std::memcpy(&value, simt::shared(offset, sizeof(T), false, site), sizeof(T));
  return value;
}
template <int V, class T, class R>
void sharedStoreVector(int offset, const R* s, int site) {
  constexpr int kBytes = V * sizeof(T) < 16 ? V * sizeof(T) : 16;
  for (int at = 0; at < (int)(V * sizeof(T)); at += kBytes)
    std::memcpy(simt::shared(offset + at, kBytes, true, site), (const char*)s + at, kBytes);
}
template <int V, class T, class R>
void sharedLoadVector(R* d, int offset, int site) {
  constexpr int kBytes = V * sizeof(T) < 16 ? V * sizeof(T) : 16;
  T all[V];
  for (int at = 0; at < (int)(V * sizeof(T)); at += kBytes)
    std::memcpy((char*)all + at, simt::shared(offset + at, kBytes, false, site), kBytes);
  simt::copyElements(d, all, V);
}
inline int clusterRank() { return simt::rank; }
inline void clusterBarrier(int site) { simt::clusterBarrier(site); }
template <class T>
T remoteLoad(int offset, int rank, int site) {
  T value;
  std::memcpy(&value, simt::remote(offset, sizeof(T), rank, site), sizeof(T));
  return value;
}

// -- threads.cuh ------------------------------------------------------------------------------------------------------
inline unsigned threadIndex() { return (unsigned)simt::thread; }
inline unsigned blockIndex() { return simt::block; }
inline void barrier(int site) { simt::barrier(site); }
template <class T>
T shuffleFrom(int lane, T value, int site) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = simt::shuffle(bits, lane, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T shuffleXor(T value, int mask, int site) {
  return shuffleFrom(simt::thread % 32 ^ mask, value, site);
}
template <class T>
T shuffleUp(T value, int distance, int site) {
  const int lane = simt::thread % 32;
  return shuffleFrom(distance >= 0 && lane < distance ? lane : lane - distance, value, site);
}
inline void fence() { simt::fence(); }
inline int ticket(int* counter, int workers, int site) { return simt::ticket(counter, workers, site); }
inline void latest(unsigned* p, unsigned value, int site) { simt::latest(p, value, site); }

// -- math.cuh ---------------------------------------------------------------------------------------------------------
inline double addDouble(double a, double b) { return a + b; }
inline float maximumFloat(float a, float b) { return a != a || b != b ? NAN : a > b ? a : b; }
inline float minimumFloat(float a, float b) { return a != a || b != b ? NAN : a < b ? a : b; }
inline float ex2Approx(float a) {
  return std::fabs(a) < simt::kSmallestNormal ? 1.f : simt::flushed(simt::approximate(std::exp2((double)a), 2, a));
}
inline float rcpApprox(float a) { return simt::flushed(simt::approximate(1.0 / (double)simt::flushed(a), 1, a)); }
inline float coarseDiv(float a, float b) { return simt::approximate((double)a / (double)b, 2, a, b); }
