struct layer_norm_bf16_args {
  const u16* X;
  const u16* W;
  const u16* B;
  u16* Y;
  float* Mean;
  float* Rstd;
  i64 M;
  i64 N;
  alignas(8) float eps;
};

extern "C" __global__ void __launch_bounds__(128) layer_norm_bf16(const __grid_constant__ layer_norm_bf16_args args) {
  const u16* __restrict__ X = args.X;
  const u16* __restrict__ W = args.W;
  const u16* __restrict__ B = args.B;
  u16* __restrict__ Y = args.Y;
  float* __restrict__ Mean = args.Mean;
  float* __restrict__ Rstd = args.Rstd;
  const i64 M = args.M;
  const i64 N = args.N;
  const float eps = args.eps;
  const unsigned part = blockIndex();
  const i64 pm = part;
  const int lane = threadIndex() % 32;
  const int warp = threadIndex() / 32;
  const int m_w = warp;
  const int n_l = lane;
  float v1;
  v1 = (float)i64(N);
  u32 x2[4];
  const u16* p = X + (N*m_w + N*pm*4 + n_l*8);
  if (m_w + pm*4 < M && n_l*8 < N) loadVector<8, kReadOnly>(x2, p, 1);
  else fill<4>(x2, 0u);
  float v3[8];
  #pragma unroll
  for (int n_v = 0; n_v < 8; ++n_v) {
    v3[n_v] = bf16ToFloat(bitsAt(x2, n_v));
  }
  float r4 = 0.0f;
  #pragma unroll
  for (int n_v = 0; n_v < 8; ++n_v) {
    r4 = r4 + v3[n_v];
  }
  #pragma unroll
  for (int mask = 16; mask >= 1; mask >>= 1) {
    r4 = r4 + shuffleXor(r4, mask, 2);
  }
  float v5;
  v5 = r4 / v1;
  float r8 = 0.0f;
  if (n_l*8 < N) {
    #pragma unroll
    for (int n_v = 0; n_v < 8; ++n_v) {
      const float v6 = v3[n_v] - v5;
      r8 = r8 + (v6 * v6);
    }
  }
  #pragma unroll
  for (int mask = 16; mask >= 1; mask >>= 1) {
    r8 = r8 + shuffleXor(r8, mask, 3);
  }
  float v12;
  v12 = rsqrtf((r8 / v1) + eps);
  if (n_l == 0 && m_w + pm*4 < M) {
    float* p_1 = Mean + (m_w + pm*4);
    storeOne<kKeep>(p_1, v5, 4);
  }
  if (n_l == 0 && m_w + pm*4 < M) {
    float* p_2 = Rstd + (m_w + pm*4);
    storeOne<kKeep>(p_2, v12, 5);
  }
  u32 w15[4];
  const u16* p_3 = W + (n_l*8);
  if (n_l*8 < N) loadVector<8, kReadOnly>(w15, p_3, 6);
  else fill<4>(w15, 0u);
  u32 b18[4];
  const u16* p_4 = B + (n_l*8);
  if (n_l*8 < N) loadVector<8, kReadOnly>(b18, p_4, 7);
  else fill<4>(b18, 0u);
  if (m_w + pm*4 < M) {
    u16* p_5 = Y + (N*m_w + N*pm*4 + n_l*8);
    u32 words[4];
    float q[8];
    #pragma unroll
    for (int n_v = 0; n_v < 8; ++n_v) {
      const float v20 = (((v3[n_v] - v5) * v12) * bf16ToFloat(bitsAt(w15, n_v))) + bf16ToFloat(bitsAt(b18, n_v));
      q[n_v] = v20;
    }
    packWordsBf16<8>(words, q);
    if (n_l*8 < N) storeVector<8, kKeep>(p_5, words, 8);
  }
}
