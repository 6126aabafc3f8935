struct add_bf16_args {
  const u16* X;
  const u16* Y;
  u16* Z;
  i64 N;
};

extern "C" __global__ void __launch_bounds__(128) add_bf16(const __grid_constant__ add_bf16_args args) {
  const u16* __restrict__ X = args.X;
  const u16* __restrict__ Y = args.Y;
  u16* __restrict__ Z = args.Z;
  const i64 N = args.N;
  const unsigned part = blockIndex();
  const i64 pn = part;
  const int thread = threadIndex();
  u32 x0[16];
  const u16* p = X + (pn*4096 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 4; ++n_r) {
    if (n_r*1024 + pn*4096 + thread*8 < N) loadVector<8, kOnce>(x0 + (n_r*8) / 2, p + n_r*1024, 1);
    else fill<4>(x0 + (n_r*8) / 2, 0u);
  }
  u32 y2[16];
  const u16* p_1 = Y + (pn*4096 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 4; ++n_r) {
    if (n_r*1024 + pn*4096 + thread*8 < N) loadVector<8, kOnce>(y2 + (n_r*8) / 2, p_1 + n_r*1024, 2);
    else fill<4>(y2 + (n_r*8) / 2, 0u);
  }
  u16* p_2 = Z + (pn*4096 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 4; ++n_r) {
    u32 words[4];
    sumWordsBf16<8, 1>(words, x0 + (n_r*8) / 2, y2 + (n_r*8) / 2);
    if (n_r*1024 + pn*4096 + thread*8 < N) storeVector<8, kOnce>(p_2 + n_r*1024, words, 3);
  }
}
