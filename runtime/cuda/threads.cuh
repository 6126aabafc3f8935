//@ thread_index device
__device__ __forceinline__ unsigned threadIndex() { return threadIdx.x; }
//@ block_index device
__device__ __forceinline__ unsigned blockIndex() { return blockIdx.x; }
//@ barrier device
__device__ __forceinline__ void barrier(int) { __syncthreads(); }
//@ shuffle_xor device
// The value of the lane whose number differs in the bits of `mask`. All lanes of the warp take part.
template <class T>
__device__ __forceinline__ T shuffleXor(T value, int mask, int) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
//@ shuffle_up device
// The value of the lane `distance` before this one; in the first lanes of the warp their own. All lanes of the warp take part.
template <class T>
__device__ __forceinline__ T shuffleUp(T value, int distance, int) {
  return __shfl_up_sync(0xffffffffu, value, distance);
}
//@ fence device
__device__ __forceinline__ void fence() { __threadfence(); }
//@ ticket device
// Numbers the arrivals of `workers` at a counter: 0, 1, ... The last one sets it to 0 again.
__device__ __forceinline__ int ticket(int* counter, int workers, int) {
  return (int)atomicInc((unsigned*)counter, (unsigned)workers - 1);
}
//@ latest device types
// Stores the larger one of a number and what is there, in one step.
__device__ __forceinline__ void latest(u32* p, u32 value, int) { atomicMax(p, value); }
