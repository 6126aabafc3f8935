//@ maximum
// NaN if either is.
template <class T>
__device__ __forceinline__ T maximum(T a, T b) {
  return a > b || a != a ? a : b;
}
//@ maximum_float device
__device__ __forceinline__ float maximumFloat(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
//@ minimum
template <class T>
__device__ __forceinline__ T minimum(T a, T b) {
  return a < b || a != a ? a : b;
}
//@ minimum_float device
__device__ __forceinline__ float minimumFloat(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
//@ sign
template <class T>
__device__ __forceinline__ T signOf(T a) {
  return a != a ? a : (T)((a > 0) - (a < 0));
}
//@ sigmoid
// Without overflow of exp for negative arguments.
__device__ __forceinline__ float sigmoid(float a) {
  const float e = expf(-fabsf(a));
  return (a >= 0.f ? 1.f : e) / (1.f + e);
}
__device__ __forceinline__ double sigmoid(double a) {
  const double e = exp(-fabs(a));
  return (a >= 0.0 ? 1.0 : e) / (1.0 + e);
}
//@ remainder
// The sign of the divisor.
__device__ __forceinline__ float remainderFloor(float a, float b) {
  const float r = fmodf(a, b);
  return r != 0.f && (r < 0.f) != (b < 0.f) ? r + b : r;
}
__device__ __forceinline__ double remainderFloor(double a, double b) {
  const double r = fmod(a, b);
  return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
}
//@ coarse_exp device
// For results that are rounded to 16 bits: a few units of the last place of a float.
__device__ __forceinline__ float coarseExp(float a) { return __expf(a); }
//@ coarse_tanh device
__device__ __forceinline__ float coarseTanh(float a) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
//@ coarse_div device
// The full range, unlike __fdividef.
__device__ __forceinline__ float coarseDiv(float a, float b) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
//@ coarse_inverse device
// For many divisions by one number: a / b is a * scale * inverse, with a scale that keeps the inverse away from the
// ends of the range.
__device__ __forceinline__ float coarseScale(float b) {
  const float size = fabsf(b);
  return size < 1e-30f ? 1.8446744073709552e19f : size > 1e30f ? 5.421010862427522e-20f : 1.f;
}
__device__ __forceinline__ float coarseInverse(float scaled) {
  float r;
  asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(scaled));
  return r;
}
//@ coarse_sigmoid coarse_exp coarse_inverse
// Not by tanh: near 0 the sigmoid of a negative number would be a difference of two numbers near 1.
__device__ __forceinline__ float coarseSigmoid(float a) {
  const float e = coarseExp(-fabsf(a));
  return (a >= 0.f ? 1.f : e) * coarseInverse(1.f + e);
}
