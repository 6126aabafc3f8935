//@ arena device types
// All shared memory of a kernel; offsets into it are bytes.
extern __shared__ __align__(16) unsigned char arena[];
//@ shared_store device arena
template <class T>
__device__ __forceinline__ void sharedStore(int offset, T value, int) {
  *(T*)(arena + offset) = value;
}
//@ shared_load device arena
template <class T>
__device__ __forceinline__ T sharedLoad(int offset, int) {
  return *(const T*)(arena + offset);
}
//@ shared_store_vector device arena
template <int V, class T, class R>
__device__ __forceinline__ void sharedStoreVector(int offset, const R* s, int) {
  constexpr int kWords = V * (int)sizeof(T) / 4;
  u32 w[kWords];
  toWords(w, s, V);
  const u32 a = (u32)__cvta_generic_to_shared(arena + offset);
  if constexpr (kWords == 1)
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(a), "r"(w[0]) : "memory");
  else if constexpr (kWords == 2)
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(a), "r"(w[0]), "r"(w[1]) : "memory");
  else {
    for (int i = 0; i < kWords; i += 4) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(a + 4 * i), "r"(w[i]), "r"(w[i + 1]), "r"(w[i + 2]),
                   "r"(w[i + 3])
                   : "memory");
    }
  }
}
//@ shared_load_vector device arena
template <int V, class T, class R>
__device__ __forceinline__ void sharedLoadVector(R* d, int offset, int) {
  constexpr int kWords = V * (int)sizeof(T) / 4;
  u32 w[kWords];
  const u32 a = (u32)__cvta_generic_to_shared(arena + offset);
  if constexpr (kWords == 1)
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(w[0]) : "r"(a) : "memory");
  else if constexpr (kWords == 2)
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(a) : "memory");
  else {
    for (int i = 0; i < kWords; i += 4) {
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[i]), "=r"(w[i + 1]), "=r"(w[i + 2]), "=r"(w[i + 3])
                   : "r"(a + 4 * i)
                   : "memory");
    }
  }
  fromWords(d, w, V);
}
