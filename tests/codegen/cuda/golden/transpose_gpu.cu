struct transpose_bf16_args {
  const u16* X;
  u16* Y;
  i64 M;
  i64 N;
};

extern "C" __global__ void __launch_bounds__(128) transpose_bf16(const __grid_constant__ transpose_bf16_args args) {
  const u16* __restrict__ X = args.X;
  u16* __restrict__ Y = args.Y;
  const i64 M = args.M;
  const i64 N = args.N;
  const unsigned part = blockIndex();
  const i64 pn = part % (unsigned)ceilDiv(N, 64);
  const i64 pm = part / (unsigned)ceilDiv(N, 64);
  constexpr int kTile0 = 0;
  const int lane = threadIndex() % 32;
  const int warp = threadIndex() / 32;
  const int m_w = warp;
  const int n_l = lane;
  const int mt_l = lane;
  const int nt_w = warp;
  u32 x0[16];
  const u16* p = X + (N*m_w + N*pm*64 + n_l*2 + pn*64);
  #pragma unroll
  for (int m_r = 0; m_r < 16; ++m_r) {
    if (m_r*4 + m_w + pm*64 < M && n_l*2 + pn*64 < N) loadVector<2, kReadOnly>(x0 + (m_r*2) / 2, p + N*m_r*4, 1);
    else fill<1>(x0 + (m_r*2) / 2, 0u);
  }
  #pragma unroll
  for (int m_r = 0; m_r < 16; ++m_r) {
    #pragma unroll
    for (int n_v = 0; n_v < 2; ++n_v) {
      sharedStore<u16>(kTile0 + (((n_l*2 + n_v) / 4)*2 + m_r*4 + m_w + n_l*160 + n_v*80)*2, (u16)(bitsAt(x0, m_r*2 + n_v)), 2);
    }
  }
  barrier(3);
  u32 t1[16];
  #pragma unroll
  for (int nt_r = 0; nt_r < 16; ++nt_r) {
    sharedLoadVector<2, u16>(t1 + (nt_r*2) / 2, kTile0 + (mt_l*2 + nt_r*322 + nt_w*80)*2, 4);
  }
  u16* p_1 = Y + (M*nt_w + M*pn*64 + mt_l*2 + pm*64);
  #pragma unroll
  for (int nt_r = 0; nt_r < 16; ++nt_r) {
    if (mt_l*2 + pm*64 < M && nt_r*4 + nt_w + pn*64 < N) storeVector<2, kKeep>(p_1 + M*nt_r*4, t1 + (nt_r*2) / 2, 5);
  }
}
