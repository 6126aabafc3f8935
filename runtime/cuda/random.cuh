//@ philox types
// Word `word` of Philox4x32-10 (Salmon et al., 2011) for a 64-bit key and a 128-bit counter.
__device__ __forceinline__ i64 philox(i64 key, i64 high, i64 low, int word) {
  u32 c0 = (u32)low, c1 = (u32)((u64)low >> 32), c2 = (u32)high, c3 = (u32)((u64)high >> 32);
  u32 k0 = (u32)key, k1 = (u32)((u64)key >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p = (u64)0xD2511F53u * c0, q = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(q >> 32) ^ c1 ^ k0;
    c1 = (u32)q;
    c2 = (u32)(p >> 32) ^ c3 ^ k1;
    c3 = (u32)p;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (i64)(word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3);
}
