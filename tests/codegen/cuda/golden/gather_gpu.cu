struct gather_bf16_args {
  const u16* X;
  const i64* I;
  u16* Y;
  i64 K;
  i64 M;
  i64 N;
};

extern "C" __global__ void __launch_bounds__(128) gather_bf16(const __grid_constant__ gather_bf16_args args) {
  const u16* __restrict__ X = args.X;
  const i64* __restrict__ I = args.I;
  u16* __restrict__ Y = args.Y;
  const i64 N = args.N;
  const unsigned part = blockIndex();
  const i64 pn = part % (unsigned)ceilDiv(N, 2048);
  const i64 pm = part / (unsigned)ceilDiv(N, 2048);
  const int thread = threadIndex();
  i64 i0;
  const i64* p = I + pm;
  i0 = loadOne<kReadOnly>(p, 1);
  u32 x1[8];
  const u16* p_1 = X + (pn*2048 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 2; ++n_r) {
    if (n_r*1024 + pn*2048 + thread*8 < N) loadVector<8, kReadOnly>(x1 + (n_r*8) / 2, p_1 + n_r*1024 + i0*N, 2);
    else fill<4>(x1 + (n_r*8) / 2, 0u);
  }
  u16* p_2 = Y + (N*pm + pn*2048 + thread*8);
  #pragma unroll
  for (int n_r = 0; n_r < 2; ++n_r) {
    if (n_r*1024 + pn*2048 + thread*8 < N) storeVector<8, kKeep>(p_2 + n_r*1024, x1 + (n_r*8) / 2, 3);
  }
}
