struct bias_gelu_f16_args {
  const u16* X;
  const u16* B;
  u16* Y;
  i64 M;
  i64 N;
};

extern "C" __global__ void __launch_bounds__(128) bias_gelu_f16(const __grid_constant__ bias_gelu_f16_args args) {
  const u16* __restrict__ X = args.X;
  const u16* __restrict__ B = args.B;
  u16* __restrict__ Y = args.Y;
  const i64 N = args.N;
  const unsigned part = blockIndex();
  const i64 pn = part % (unsigned)ceilDiv(N, 2048);
  const i64 pm = part / (unsigned)ceilDiv(N, 2048);
  const int thread = threadIndex();
  u32 x0[8];
  const u16* p = X + (N*pm + pn*2048 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 2; ++n_r) {
    if (n_r*1024 + pn*2048 + thread*8 < N) loadVector<8, kReadOnly>(x0 + (n_r*8) / 2, p + n_r*1024, 1);
    else fill<4>(x0 + (n_r*8) / 2, 0u);
  }
  u32 b2[8];
  const u16* p_1 = B + (pn*2048 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 2; ++n_r) {
    if (n_r*1024 + pn*2048 + thread*8 < N) loadVector<8, kReadOnly>(b2 + (n_r*8) / 2, p_1 + n_r*1024, 2);
    else fill<4>(b2 + (n_r*8) / 2, 0u);
  }
  u16* p_2 = Y + (N*pm + pn*2048 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 2; ++n_r) {
    u32 words[4];
    float q[8];
    #pragma unroll
    for (int n_v = 0; n_v < 8; ++n_v) {
      const float v4 = f16ToFloat(bitsAt(x0, n_r*8 + n_v)) + f16ToFloat(bitsAt(b2, n_r*8 + n_v));
      q[n_v] = (v4 * 0.5f) * (erff(v4 * 0.70710677f) + 1.0f);
    }
    packWordsF16<8>(words, q);
    if (n_r*1024 + pn*2048 + thread*8 < N) storeVector<8, kKeep>(p_2 + n_r*1024, words, 3);
  }
}
