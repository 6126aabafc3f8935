//@ cluster_rank device
__device__ __forceinline__ int clusterRank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
//@ cluster_barrier device
__device__ __forceinline__ void clusterBarrier(int) {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
//@ remote_load device arena
// From the shared memory of block `rank` of the cluster.
template <class T>
__device__ __forceinline__ T remoteLoad(int offset, int rank, int) {
  const u32 own = (u32)__cvta_generic_to_shared(arena + offset);
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  if constexpr (sizeof(T) == 8) {
    u64 bits;
    asm volatile("ld.shared::cluster.b64 %0, [%1];" : "=l"(bits) : "r"(there) : "memory");
    return __builtin_bit_cast(T, bits);
  } else {
    u32 bits;
    asm volatile("ld.shared::cluster.b32 %0, [%1];" : "=r"(bits) : "r"(there) : "memory");
    return __builtin_bit_cast(T, bits);
  }
}
