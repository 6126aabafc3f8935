struct outer_sum_f16_args {
  const u16* X;
  u16* Y;
  float* P;
  int* C;
  i64 M;
  i64 N;
};

extern "C" __global__ void __launch_bounds__(128) outer_sum_f16(const __grid_constant__ outer_sum_f16_args args) {
  const u16* __restrict__ X = args.X;
  u16* __restrict__ Y = args.Y;
  float* __restrict__ P = args.P;
  int* __restrict__ C = args.C;
  const i64 M = args.M;
  const i64 N = args.N;
  const unsigned part = blockIndex();
  const i64 pn = part % (unsigned)ceilDiv(N, 64);
  const i64 pm = part / (unsigned)ceilDiv(N, 64);
  constexpr int kWarps0 = 0;
  constexpr int kTicket = 1024;
  const int lane = threadIndex() % 32;
  const int warp = threadIndex() / 32;
  const int m_w = warp;
  const int m_l = lane / 8;
  const int n_l = lane % 8;
  const int j_l = lane % 8;
  float c1[16];
  #pragma unroll
  for (int m_r = 0; m_r < 2; ++m_r) {
    #pragma unroll
    for (int n_v = 0; n_v < 8; ++n_v) {
      c1[m_r*8 + n_v] = 0.0f;
    }
  }
  for (int m_s = 0; m_s < 2 && m_s*32 + pm*64 < M; ++m_s) {
    u32 x2[8];
    const u16* p = X + (N*m_l + N*m_s*32 + N*m_w*4 + N*pm*64 + n_l*8 + pn*64);
    #pragma unroll
    for (int m_r = 0; m_r < 2; ++m_r) {
      if (m_l + m_r*16 + m_s*32 + m_w*4 + pm*64 < M && n_l*8 + pn*64 < N) loadVector<8, kOnce>(x2 + (m_r*8) / 2, p + N*m_r*16, 1);
      else fill<4>(x2 + (m_r*8) / 2, 0u);
    }
    #pragma unroll
    for (int m_r = 0; m_r < 2; ++m_r) {
      #pragma unroll
      for (int n_v = 0; n_v < 8; ++n_v) {
        if (m_l + m_r*16 + m_s*32 + m_w*4 + pm*64 < M) {
          c1[m_r*8 + n_v] = c1[m_r*8 + n_v] + f16ToFloat(bitsAt(x2, m_r*8 + n_v));
        }
      }
    }
  }
  float r6[8];
  #pragma unroll
  for (int n_v = 0; n_v < 8; ++n_v) {
    r6[n_v] = 0.0f;
  }
  #pragma unroll
  for (int m_r = 0; m_r < 2; ++m_r) {
    if (m_l + m_r*16 + m_w*4 + pm*64 < M) {
      #pragma unroll
      for (int n_v = 0; n_v < 8; ++n_v) {
        r6[n_v] = r6[n_v] + c1[m_r*8 + n_v];
      }
    }
  }
  #pragma unroll
  for (int mask = 16; mask >= 8; mask >>= 1) {
    #pragma unroll
    for (int n_v = 0; n_v < 8; ++n_v) {
      r6[n_v] = r6[n_v] + shuffleXor(r6[n_v], mask, 2);
    }
  }
  if (m_l == 0) {
    #pragma unroll
    for (int n_v = 0; n_v < 8; ++n_v) {
      sharedStore<float>(kWarps0 + m_w*256 + n_l*4 + n_v*32, r6[n_v], 3);
    }
  }
  barrier(4);
  #pragma unroll
  for (int n_v = 0; n_v < 8; ++n_v) {
    r6[n_v] = sharedLoad<float>(kWarps0 + n_l*4 + n_v*32, 5);
  }
  #pragma unroll
  for (int w = 1; w < 4; ++w) {
    #pragma unroll
    for (int n_v = 0; n_v < 8; ++n_v) {
      r6[n_v] = r6[n_v] + sharedLoad<float>(kWarps0 + n_l*4 + n_v*32 + w*256, 6);
    }
  }
  if (m_w == 0 && m_l == 0 && pm*64 < M) {
    float* p_1 = P + (N*pm + n_l*8 + pn*64);
    if (n_l*8 + pn*64 < N) storeVector<8, kKeep, 32>(p_1, r6, 7);
  }
  fence();
  barrier(8);
  if (threadIndex() == 0) {
    sharedStore<int>(kTicket, ticket(C + pn, ceilDiv(M, 64), 9) == ceilDiv(M, 64) - 1, 10);
  }
  barrier(11);
  const bool last = sharedLoad<int>(kTicket, 12) != 0;
  if (last) {
    fence();
    float c8[8];
    #pragma unroll
    for (int j_v = 0; j_v < 8; ++j_v) {
      c8[j_v] = 0.0f;
    }
    for (i64 k_s = 0; k_s < ceilDiv(M, 64); ++k_s) {
      float p9[8];
      const float* p_2 = P + (N*k_s + j_l*8 + pn*64);
      if (j_l*8 + pn*64 < N) loadVector<8, kShared, 32>(p9, p_2, 13);
      else fill<8>(p9, 0.0f);
      #pragma unroll
      for (int j_v = 0; j_v < 8; ++j_v) {
        c8[j_v] = c8[j_v] + p9[j_v];
      }
    }
    if (lane < 8 && warp == 0) {
      u16* p_3 = Y + (j_l*8 + pn*64);
      u32 words[4];
      float q[8];
      #pragma unroll
      for (int j_v = 0; j_v < 8; ++j_v) {
        q[j_v] = c8[j_v];
      }
      packWordsF16<8>(words, q);
      if (j_l*8 + pn*64 < N) storeVector<8, kKeep>(p_3, words, 14);
    }
  }
}
