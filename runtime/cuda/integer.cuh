//@ wrap types
// Arithmetic modulo 2^32 or 2^64.
__device__ __forceinline__ int addWrap(int a, int b) { return (int)((u32)a + (u32)b); }
__device__ __forceinline__ i64 addWrap(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
__device__ __forceinline__ int subWrap(int a, int b) { return (int)((u32)a - (u32)b); }
__device__ __forceinline__ i64 subWrap(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
__device__ __forceinline__ int mulWrap(int a, int b) { return (int)((u32)a * (u32)b); }
__device__ __forceinline__ i64 mulWrap(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
//@ divide wrap
// Truncates; by zero gives 0, the minimum by -1 the minimum.
template <class T>
__device__ __forceinline__ T divide(T a, T b) {
  return b == 0 ? T(0) : b == -1 ? subWrap(T(0), a) : a / b;
}
//@ mod_trunc
template <class T>
__device__ __forceinline__ T modTrunc(T a, T b) {
  return b == 0 || b == -1 ? T(0) : a % b;
}
//@ mod_floor mod_trunc
// The sign of the divisor.
template <class T>
__device__ __forceinline__ T modFloor(T a, T b) {
  const T r = modTrunc(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
//@ ceil_div divide
template <class T>
__device__ __forceinline__ T ceilDivide(T a, T b) {
  const T q = divide(a, b);
  return b != 0 && b != -1 && a % b != 0 && (a < 0) == (b < 0) ? q + 1 : q;
}
//@ gcd types
__device__ __forceinline__ i64 gcdOf(i64 a, i64 b) {
  u64 x = a < 0 ? -(u64)a : (u64)a, y = b < 0 ? -(u64)b : (u64)b;
  while (y != 0) {
    const u64 r = x % y;
    x = y;
    y = r;
  }
  return (i64)x;
}
__device__ __forceinline__ int gcdOf(int a, int b) { return (int)gcdOf((i64)a, (i64)b); }
//@ pow_int wrap
template <class T>
__device__ __forceinline__ T powInt(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == -1 ? ((exponent & 1) ? T(-1) : T(1)) : T(0);
  T result = 1;
  while (exponent != 0) {
    if (exponent & 1) result = mulWrap(result, base);
    base = mulWrap(base, base);
    exponent >>= 1;
  }
  return result;
}
//@ shifts types
__device__ __forceinline__ int shiftLeft(int a, int n) { return n < 0 || n > 31 ? 0 : (int)((u32)a << n); }
__device__ __forceinline__ i64 shiftLeft(i64 a, i64 n) { return n < 0 || n > 63 ? 0 : (i64)((u64)a << n); }
__device__ __forceinline__ int shiftRight(int a, int n) { return a >> ((u32)n > 31 ? 31 : n); }
__device__ __forceinline__ i64 shiftRight(i64 a, i64 n) { return a >> ((u64)n > 63 ? 63 : n); }
//@ checked_index types
// Zeroed before the launch. The first thread that refuses an index writes it.
struct RefusedIndexRecord {
  u64 taken;
  i64 index;
  i64 extent;
};
// The index, or 0 for a refused one. Not `inside`: nobody uses the element, and any index will do.
template <class T>
__device__ __forceinline__ T checkedIndex(T index, T extent, bool inside, RefusedIndexRecord* refused) {
  if (!inside || (index >= 0 && index < extent)) return index;
  if (atomicExch(&refused->taken, 1) == 0) {
    refused->index = index;
    refused->extent = extent;
  }
  return 0;
}
//@ index_division types
// Of index expressions: positive divisors, rounded down.
__device__ __forceinline__ i64 floorDiv(i64 a, i64 b) { return a / b - (a % b < 0); }
__device__ __forceinline__ i64 ceilDiv(i64 a, i64 b) { return a / b + (a % b > 0); }
__device__ __forceinline__ i64 floorMod(i64 a, i64 b) { return a - floorDiv(a, b) * b; }
//@ index_bounds types
__device__ __forceinline__ i64 least(i64 a, i64 b) { return a < b ? a : b; }
__device__ __forceinline__ i64 greatest(i64 a, i64 b) { return a < b ? b : a; }
