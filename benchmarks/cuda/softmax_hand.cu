// Softmax of rows of bfloat16, written by hand for rows of up to 4096 elements: what nvrtc_bench measures generated
// text against. A block of 128 threads takes a row and keeps it in registers; N is a multiple of 8.
extern "C" __global__ void __launch_bounds__(128)
    softmax_hand(const unsigned short* __restrict__ X, unsigned short* __restrict__ Y, long long M, long long N) {
  constexpr int kThreads = 128, kVectors = 4;
  __shared__ float partial[2][kThreads / 32];
  const int thread = threadIdx.x, warp = thread / 32;
  const uint4* in = (const uint4*)(X + blockIdx.x * N);
  uint4* out = (uint4*)(Y + blockIdx.x * N);
  float x[kVectors][8];
  float top = __int_as_float(0xff800000);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int at = v * kThreads + thread;
    if (at * 8 < N) {
      const uint4 q = __ldg(in + at);
      const unsigned words[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[v][2 * i] = __uint_as_float(words[i] << 16);
        x[v][2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) x[v][i] = __int_as_float(0xff800000);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) top = fmaxf(top, x[v][i]);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
  if (thread % 32 == 0) partial[0][warp] = top;
  __syncthreads();
  top = fmaxf(fmaxf(partial[0][0], partial[0][1]), fmaxf(partial[0][2], partial[0][3]));
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      x[v][i] = __expf(x[v][i] - top);
      sum += x[v][i];
    }
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (thread % 32 == 0) partial[1][warp] = sum;
  __syncthreads();
  const float scale = __fdividef(1.f, partial[1][0] + partial[1][1] + partial[1][2] + partial[1][3]);
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int at = v * kThreads + thread;
    if (at * 8 < N) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(x[v][2 * i + 1] * scale), "f"(x[v][2 * i] * scale));
      }
      __stwb(out + at, make_uint4(words[0], words[1], words[2], words[3]));
    }
  }
}
