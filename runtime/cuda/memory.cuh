//@ words_f32 types
// Elements of register tiles out of, and into, 32-bit words as memory holds them.
__device__ __forceinline__ void fromWords(float* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = __uint_as_float(w[i]);
}
__device__ __forceinline__ void toWords(u32* w, const float* s, int n) {
  for (int i = 0; i < n; ++i) w[i] = __float_as_uint(s[i]);
}
//@ words_i32 types
__device__ __forceinline__ void fromWords(int* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = (int)w[i];
}
__device__ __forceinline__ void toWords(u32* w, const int* s, int n) {
  for (int i = 0; i < n; ++i) w[i] = (u32)s[i];
}
//@ words_f64 types
__device__ __forceinline__ void fromWords(double* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = __hiloint2double((int)w[2 * i + 1], (int)w[2 * i]);
}
__device__ __forceinline__ void toWords(u32* w, const double* s, int n) {
  for (int i = 0; i < n; ++i) {
    w[2 * i] = (u32)__double2loint(s[i]);
    w[2 * i + 1] = (u32)__double2hiint(s[i]);
  }
}
//@ words_i64 types
__device__ __forceinline__ void fromWords(i64* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = (i64)((u64)w[2 * i + 1] << 32 | w[2 * i]);
}
__device__ __forceinline__ void toWords(u32* w, const i64* s, int n) {
  for (int i = 0; i < n; ++i) {
    w[2 * i] = (u32)s[i];
    w[2 * i + 1] = (u32)((u64)s[i] >> 32);
  }
}
//@ words_i16 types
__device__ __forceinline__ void fromWords(short* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = (short)(w[i >> 1] >> (i & 1) * 16);
}
__device__ __forceinline__ void toWords(u32* w, const short* s, int n) {
  for (int i = 0; i < n / 2; ++i) w[i] = (u32)(u16)s[2 * i] | (u32)(u16)s[2 * i + 1] << 16;
}
//@ words_i8 types
__device__ __forceinline__ void fromWords(signed char* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = (signed char)(w[i >> 2] >> (i & 3) * 8);
}
__device__ __forceinline__ void toWords(u32* w, const signed char* s, int n) {
  for (int i = 0; i < n / 4; ++i) {
    w[i] = 0;
    for (int k = 0; k < 4; ++k) w[i] |= (u32)(unsigned char)s[4 * i + k] << 8 * k;
  }
}
//@ words_u16 types
__device__ __forceinline__ void fromWords(u16* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = (u16)(w[i >> 1] >> (i & 1) * 16);
}
__device__ __forceinline__ void toWords(u32* w, const u16* s, int n) {
  for (int i = 0; i < n / 2; ++i) w[i] = (u32)s[2 * i] | (u32)s[2 * i + 1] << 16;
}
//@ words_u8 types
__device__ __forceinline__ void fromWords(unsigned char* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = (unsigned char)(w[i >> 2] >> (i & 3) * 8);
}
__device__ __forceinline__ void toWords(u32* w, const unsigned char* s, int n) {
  for (int i = 0; i < n / 4; ++i) {
    w[i] = (u32)s[4 * i] | (u32)s[4 * i + 1] << 8 | (u32)s[4 * i + 2] << 16 | (u32)s[4 * i + 3] << 24;
  }
}
//@ words_b8 types
__device__ __forceinline__ void fromWords(bool* d, const u32* w, int n) {
  for (int i = 0; i < n; ++i) d[i] = ((w[i >> 2] >> (i & 3) * 8) & 0xffu) != 0;
}
__device__ __forceinline__ void toWords(u32* w, const bool* s, int n) {
  for (int i = 0; i < n / 4; ++i) {
    w[i] = (u32)s[4 * i] | (u32)s[4 * i + 1] << 8 | (u32)s[4 * i + 2] << 16 | (u32)s[4 * i + 3] << 24;
  }
}
//@ words_16 types
__device__ __forceinline__ void fromWords(u32* d, const u32* w, int n) {
  for (int i = 0; i < n / 2; ++i) d[i] = w[i];
}
__device__ __forceinline__ void toWords(u32* w, const u32* s, int n) {
  for (int i = 0; i < n / 2; ++i) w[i] = s[i];
}
//@ load_one device access
template <int A, class T>
__device__ __forceinline__ T loadOne(const T* p, int) {
  if constexpr (A == kShared)
    return __ldcg(p);
  else
    return __ldg(p);
}
//@ store_one device access
template <int A, class T>
__device__ __forceinline__ void storeOne(T* p, T value, int) {
  if constexpr (A == kOnce)
    __stcs(p, value);
  else
    *p = value;
}
//@ load_vector device access
template <int A, class W>
__device__ __forceinline__ W loadWide(const W* p) {
  if constexpr (A == kShared)
    return __ldcg(p);
  else
    return __ldg(p);
}
// 32 bytes at an address that they divide: one access from sm_100 on, else two.
template <int A>
__device__ __forceinline__ void loadEight(u32* w, const u32* p) {
#if __CUDA_ARCH__ >= 1000
  if constexpr (A != kShared)
    asm("ld.global.nc.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
        : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]), "=r"(w[4]), "=r"(w[5]), "=r"(w[6]), "=r"(w[7])
        : "l"(p));
  else
    asm volatile("ld.global.cg.v8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]), "=r"(w[4]), "=r"(w[5]), "=r"(w[6]), "=r"(w[7])
                 : "l"(p)
                 : "memory");
#else
  for (int i = 0; i < 8; i += 4) {
    const uint4 q = loadWide<A>((const uint4*)p + i / 4);
    w[i] = q.x, w[i + 1] = q.y, w[i + 2] = q.z, w[i + 3] = q.w;
  }
#endif
}
// V elements in accesses of at most B bytes, which is 16 or 32.
template <int V, int A, int B = 16, class R, class T>
__device__ __forceinline__ void loadVector(R* d, const T* p, int) {
  constexpr int kWords = V * (int)sizeof(T) / 4;
  u32 w[kWords];
  if constexpr (B == 32)
    for (int i = 0; i < kWords; i += 8) loadEight<A>(w + i, (const u32*)p + i);
  else if constexpr (kWords == 1)
    w[0] = loadWide<A>((const u32*)p);
  else if constexpr (kWords == 2) {
    const uint2 q = loadWide<A>((const uint2*)p);
    w[0] = q.x, w[1] = q.y;
  } else {
    for (int i = 0; i < kWords; i += 4) {
      const uint4 q = loadWide<A>((const uint4*)p + i / 4);
      w[i] = q.x, w[i + 1] = q.y, w[i + 2] = q.z, w[i + 3] = q.w;
    }
  }
  fromWords(d, w, V);
}
//@ store_vector device access
template <int A, class W>
__device__ __forceinline__ void storeWide(W* p, W value) {
  if constexpr (A == kOnce)
    __stcs(p, value);
  else
    __stwb(p, value);
}
// As loadEight.
template <int A>
__device__ __forceinline__ void storeEight(u32* p, const u32* w) {
#if __CUDA_ARCH__ >= 1000
  if constexpr (A == kOnce)
    asm volatile("st.global.cs.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};"
                 :
                 : "l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(w[4]), "r"(w[5]), "r"(w[6]), "r"(w[7])
                 : "memory");
  else
    asm volatile("st.global.wb.v8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};"
                 :
                 : "l"(p), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(w[4]), "r"(w[5]), "r"(w[6]), "r"(w[7])
                 : "memory");
#else
  for (int i = 0; i < 8; i += 4) storeWide<A>((uint4*)p + i / 4, make_uint4(w[i], w[i + 1], w[i + 2], w[i + 3]));
#endif
}
template <int V, int A, int B = 16, class T, class R>
__device__ __forceinline__ void storeVector(T* p, const R* s, int) {
  constexpr int kWords = V * (int)sizeof(T) / 4;
  u32 w[kWords];
  toWords(w, s, V);
  if constexpr (B == 32)
    for (int i = 0; i < kWords; i += 8) storeEight<A>((u32*)p + i, w + i);
  else if constexpr (kWords == 1)
    storeWide<A>((u32*)p, w[0]);
  else if constexpr (kWords == 2)
    storeWide<A>((uint2*)p, make_uint2(w[0], w[1]));
  else {
    for (int i = 0; i < kWords; i += 4) storeWide<A>((uint4*)p + i / 4, make_uint4(w[i], w[i + 1], w[i + 2], w[i + 3]));
  }
}
//@ fill
template <int N, class R>
__device__ __forceinline__ void fill(R* d, R value) {
  for (int i = 0; i < N; ++i) d[i] = value;
}
