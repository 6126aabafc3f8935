//@ bf16_to_float types
__device__ __forceinline__ float bf16ToFloat(u32 bits) { return __uint_as_float(bits << 16); }
//@ f16_to_float device types
__device__ __forceinline__ float f16ToFloat(u32 bits) {
  float f;
  asm("{ .reg .b16 h; cvt.u16.u32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(f) : "r"(bits));
  return f;
}
//@ pack_bf16 device types
// Two floats rounded to bfloat16, the first in the low half.
__device__ __forceinline__ u32 packBf16(float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
//@ float_to_bf16 pack_bf16
__device__ __forceinline__ u32 floatToBf16(float value) { return packBf16(value, 0.f) & 0xffffu; }
//@ pack_f16 device types
__device__ __forceinline__ u32 packF16(float low, float high) {
  u32 word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
//@ float_to_f16 pack_f16
__device__ __forceinline__ u32 floatToF16(float value) { return packF16(value, 0.f) & 0xffffu; }
//@ fma_pair_bf16 device types
// a * b + c of the two bfloat16 in each word, rounded once.
__device__ __forceinline__ u32 fmaPairBf16(u32 a, u32 b, u32 c) {
  u32 word;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));
  return word;
}
//@ fma_pair_f16 device types
__device__ __forceinline__ u32 fmaPairF16(u32 a, u32 b, u32 c) {
  u32 word;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));
  return word;
}
//@ bits_at types
// Element i of a register tile that holds two 16-bit elements in a word.
__device__ __forceinline__ u32 bitsAt(const u32* words, int i) { return (words[i >> 1] >> (i & 1) * 16) & 0xffffu; }
//@ put_bits types
__device__ __forceinline__ void putBits(u32* words, int i, u32 bits) {
  const u32 rest = words[i >> 1] & ((i & 1) ? 0xffffu : 0xffff0000u);
  words[i >> 1] = rest | bits << (i & 1) * 16;
}
//@ pack_words_bf16 pack_bf16
template <int V>
__device__ __forceinline__ void packWordsBf16(u32* words, const float* values) {
  for (int i = 0; i < V / 2; ++i) words[i] = packBf16(values[2 * i], values[2 * i + 1]);
}
//@ pack_words_f16 pack_f16
template <int V>
__device__ __forceinline__ void packWordsF16(u32* words, const float* values) {
  for (int i = 0; i < V / 2; ++i) words[i] = packF16(values[2 * i], values[2 * i + 1]);
}
//@ sum_words_bf16 fma_pair_bf16
// a + Sign * b of packed vectors, Sign 1 or -1: what the sum in float, which has more than twice the digits, is rounded to.
template <int V, int Sign>
__device__ __forceinline__ void sumWordsBf16(u32* words, const u32* a, const u32* b) {
  for (int i = 0; i < V / 2; ++i) words[i] = fmaPairBf16(b[i], Sign > 0 ? 0x3f803f80u : 0xbf80bf80u, a[i]);
}
//@ sum_words_f16 fma_pair_f16
template <int V, int Sign>
__device__ __forceinline__ void sumWordsF16(u32* words, const u32* a, const u32* b) {
  for (int i = 0; i < V / 2; ++i) words[i] = fmaPairF16(b[i], Sign > 0 ? 0x3c003c00u : 0xbc00bc00u, a[i]);
}
