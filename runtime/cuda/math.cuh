//@ add_double device
// a + b where few threads of a warp need it: an addition with a predicate. Of a plain sum the compiler adds in all threads, and selects both
// words of the result.
__device__ __forceinline__ double addDouble(double a, double b) {
  double r;
  asm volatile("add.rn.f64 %0, %1, %2;" : "=d"(r) : "d"(a), "d"(b));
  return r;
}
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
//@ ex2_approx device
// 2^a, at most 2 units of the last place off; results below 2^-126 are 0.
__device__ __forceinline__ float ex2Approx(float a) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
//@ rcp_approx device
// 1 / a, at most 1 unit of the last place off; numbers below 2^-126 are 0.
__device__ __forceinline__ float rcpApprox(float a) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
//@ coarse_div device
// At most 2 units of the last place off, over the full range, unlike __fdividef.
__device__ __forceinline__ float coarseDiv(float a, float b) {
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
//@ exp_float ex2_approx
// 2^(a log2(e)), at most 3 units of the last place off; results below 2^-126 are 0. Rounding the exponent t to a float changes the result by up to |a| units of the last place; `lost` is what of a it
// lost, a - t ln(2), and e^lost is 1 + lost.
__device__ __forceinline__ float expFloat(float a) {
  const float t = a * 1.44269504f;
  const float e = ex2Approx(t);
  const float lost = fmaf(t, 1.90465430e-9f, fmaf(t, -0.693147182f, a));
  return fabsf(t) < 128.f ? fmaf(e, lost, e) : e;
}
//@ inverse rcp_approx
// For many divisions by one number: a / b is a * scale * inverse, with a scale that keeps the inverse away from the ends of the range.
// It has the sign of b, and the inverse none.
__device__ __forceinline__ float inverseScale(float b) {
  const float size = fabsf(b);
  return copysignf(size < 1e-30f ? 1.8446744073709552e19f : size > 1e30f ? 5.421010862427522e-20f : 1.f, b);
}
__device__ __forceinline__ float coarseInverse(float scaled) { return rcpApprox(scaled); }
//@ quotient inverse
// The inverse with all its digits; that of 0 and of infinity has no remainder.
__device__ __forceinline__ float fineInverse(float scaled) {
  const float r = rcpApprox(scaled);
  const float rest = fmaf(-scaled, r, 1.f);
  return fabsf(rest) < 1.f ? fmaf(r, rest, r) : r;
}
// The quotient with the digits that its remainder corrects: at most 1 unit of the last place off, or 2^-149 where that is more. Zeros have
// the sign of a division, because the remainder is subtracted. An infinity would have no remainder; the largest number has one, which makes
// the quotient infinite where it must be.
__device__ __forceinline__ float quotient(float a, float scale, float scaled, float inverse) {
  const float largest = 3.40282347e38f;
  const float q = fmaxf(fminf(a * scale * inverse, largest), -largest);
  return fmaf(fmaf(q, fminf(scaled, largest), -(a * scale)), -inverse, q);
}
//@ tanh_float exp_float rcp_approx
// Not by tanh.approx, whose error of 2^-11 shows in results of 16 bits. Near 0 a polynomial, because 1 - 2 / (e^2a + 1) cancels there.
__device__ __forceinline__ float tanhFloat(float a) {
  const float size = fabsf(a);
  const float far = fmaf(-2.f, rcpApprox(expFloat(2.f * size) + 1.f), 1.f);
  const float s = size * size;
  float p = fmaf(-0.00654254202f, s, 0.0212727487f);
  p = fmaf(p, s, -0.0539033487f);
  p = fmaf(p, s, 0.133330822f);
  p = fmaf(p, s, -0.333333313f);
  return copysignf(size < 0.55f ? fmaf(size * s, p, size) : far, a);
}
//@ coarse_sigmoid exp_float rcp_approx
// Not by tanh: near 0 the sigmoid of a negative number would be a difference of two numbers near 1.
__device__ __forceinline__ float coarseSigmoid(float a) { return rcpApprox(1.f + expFloat(-a)); }
//@ sigmoid_float exp_float rcp_approx minimum_float
// The remainder corrects the inverse: sigmoid(0) is 0.5 and no result is above 1. Of exp(88) the inverse is 0, that of infinity has no remainder.
__device__ __forceinline__ float sigmoidFloat(float a) {
  const float b = 1.f + expFloat(minimumFloat(-a, 88.f));
  const float r = rcpApprox(b);
  return fmaf(r, fmaf(-b, r, 1.f), r);
}
