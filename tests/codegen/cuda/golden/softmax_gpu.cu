struct softmax_f32_args {
  const float* X;
  float* Y;
  i64 M;
  i64 N;
};

extern "C" __global__ void __launch_bounds__(128) softmax_f32(const __grid_constant__ softmax_f32_args args) {
  const float* __restrict__ X = args.X;
  float* __restrict__ Y = args.Y;
  const i64 N = args.N;
  const unsigned part = blockIndex();
  const i64 pm = part;
  constexpr int kWarps0 = 0;
  constexpr int kWarps1 = 16;
  const int thread = threadIndex();
  const int lane = threadIndex() % 32;
  const int warp = threadIndex() / 32;
  const int n_w = warp;
  const int n_l = lane;
  float x0[12];
  const float* p = X + (N*pm + thread*4);
  #pragma unroll
  for (int n_r = 0; n_r < 3; ++n_r) {
    if (n_r*512 + thread*4 < N) loadVector<4, kReadOnly>(x0 + n_r*4, p + n_r*512, 1);
    else fill<4>(x0 + n_r*4, __int_as_float(0xff800000));
  }
  float r1 = __int_as_float(0xff800000);
  #pragma unroll
  for (int n_r = 0; n_r < 3; ++n_r) {
    #pragma unroll
    for (int n_v = 0; n_v < 4; ++n_v) {
      r1 = maximumFloat(r1, x0[n_r*4 + n_v]);
    }
  }
  #pragma unroll
  for (int mask = 16; mask >= 1; mask >>= 1) {
    r1 = maximumFloat(r1, shuffleXor(r1, mask, 2));
  }
  if (n_l == 0) {
    sharedStore<float>(kWarps0 + n_w*4, r1, 3);
  }
  barrier(4);
  r1 = sharedLoad<float>(kWarps0, 5);
  #pragma unroll
  for (int w = 1; w < 4; ++w) {
    r1 = maximumFloat(r1, sharedLoad<float>(kWarps0 + w*4, 6));
  }
  float v3[12];
  #pragma unroll
  for (int n_r = 0; n_r < 3; ++n_r) {
    #pragma unroll
    for (int n_v = 0; n_v < 4; ++n_v) {
      v3[n_r*4 + n_v] = expFloat(x0[n_r*4 + n_v] - r1);
    }
  }
  float r4 = 0.0f;
  #pragma unroll
  for (int n_r = 0; n_r < 3; ++n_r) {
    #pragma unroll
    for (int n_v = 0; n_v < 4; ++n_v) {
      r4 = r4 + v3[n_r*4 + n_v];
    }
  }
  #pragma unroll
  for (int mask = 16; mask >= 1; mask >>= 1) {
    r4 = r4 + shuffleXor(r4, mask, 7);
  }
  if (n_l == 0) {
    sharedStore<float>(kWarps1 + n_w*4, r4, 8);
  }
  barrier(9);
  r4 = sharedLoad<float>(kWarps1, 10);
  #pragma unroll
  for (int w_1 = 1; w_1 < 4; ++w_1) {
    r4 = r4 + sharedLoad<float>(kWarps1 + w_1*4, 11);
  }
  float* p_1 = Y + (N*pm + thread*4);
  const float scale = inverseScale(r4);
  const float scaled = r4 * scale;
  const float inverse = fineInverse(scaled);
  #pragma unroll
  for (int n_r = 0; n_r < 3; ++n_r) {
    float q[4];
    #pragma unroll
    for (int n_v = 0; n_v < 4; ++n_v) {
      q[n_v] = quotient(v3[n_r*4 + n_v], scale, scaled, inverse);
    }
    if (n_r*512 + thread*4 < N) storeVector<4, kKeep>(p_1 + n_r*512, q, 12);
  }
}
