// Results of elementwise ops that are written down. The reference interpreter, the interpreter of tile programs, compiled kernels and
// emulated CUDA text are compared with them.
//
// Results come from the definitions of IEEE 754, of C (Annex F) and, where ir/point_op.h names it, of PyTorch; those of functions without
// an exact result from mpmath with 200 bits. They come from no code of meshfuse and from no <cmath> function.
//
//   op: operands = result; operands ~ result
//
// = is exact, also the sign of a 0; ~ is rounded, and the digits are those of a Double. The condition of where, and a Bool, is 0 or 1.
#pragma once

namespace meshfuse {

// Of Float and Double.
inline constexpr const char* kRealValues = R"(
  abs: -1.5 = 1.5; -0 = 0; -inf = inf; nan = nan
  neg: 1.5 = -1.5; 0 = -0; -inf = inf; nan = nan
  ceil: 1.25 = 2; -1.25 = -1; -0.5 = -0; -2 = -2; inf = inf; nan = nan
  floor: 1.25 = 1; -1.25 = -2; 0.5 = 0; -0 = -0; -inf = -inf; nan = nan
  round: 0.5 = 0; 1.5 = 2; 2.5 = 2; -0.5 = -0; -2.5 = -2; 2.75 = 3; inf = inf; nan = nan
  trunc: 1.75 = 1; -1.75 = -1; -0.5 = -0; -inf = -inf; nan = nan
  frac: 1.25 = 0.25; -1.25 = -0.25; 3 = 0; inf = nan; nan = nan
  sign: 3 = 1; -0.5 = -1; 0 = 0; -inf = -1; nan = nan
  signbit: -0 = 1; 0 = 0; -inf = 1; 2 = 0
  sqrt: 4 = 2; 2.25 = 1.5; 0 = 0; -0 = -0; -1 = nan; inf = inf; nan = nan; 2 ~ 1.4142135623730951;
      0.75 ~ 0.8660254037844386
  reciprocal: 4 = 0.25; 0 = inf; -0 = -inf; inf = 0; -inf = -0; nan = nan; 3 ~ 0.3333333333333333;
      -7 ~ -0.14285714285714285
  rsqrt: 4 ~ 0.5; 0 = inf; inf = 0; -1 = nan; nan = nan; 2 ~ 0.7071067811865476; 0.75 ~ 1.1547005383792515;
      10 ~ 0.31622776601683794
  exp: 0 = 1; -inf = 0; inf = inf; 1000 = inf; -1000 = 0; nan = nan; 0.5 ~ 1.6487212707001282;
      -3 ~ 0.049787068367863944; 20 ~ 485165195.4097903; -0.0625 ~ 0.9394130628134758
  exp2: 3 = 8; -1 = 0.5; 0 = 1; -inf = 0; inf = inf; nan = nan; 0.5 ~ 1.4142135623730951; -2.25 ~ 0.21022410381342863
  expm1: 0 = 0; -inf = -1; inf = inf; nan = nan; 0.5 ~ 0.6487212707001282; -1 ~ -0.6321205588285577;
      0.0009765625 ~ 0.0009770394924165351
  log: 1 = 0; 0 = -inf; -0 = -inf; -1 = nan; inf = inf; nan = nan; 0.5 ~ -0.6931471805599453; 3 ~ 1.0986122886681098;
      10 ~ 2.302585092994046; 0.0009765625 ~ -6.931471805599453
  log2: 8 = 3; 1 = 0; 0 = -inf; -1 = nan; inf = inf; 3 ~ 1.584962500721156; 0.75 ~ -0.4150374992788438
  log10: 1 = 0; 0 = -inf; -1 = nan; inf = inf; 100 ~ 2.0; 0.5 ~ -0.3010299956639812; 3 ~ 0.47712125471966244
  log1p: 0 = 0; -1 = -inf; -2 = nan; inf = inf; 0.5 ~ 0.4054651081081644; -0.75 ~ -1.3862943611198906;
      0.0009765625 ~ 0.0009760859730554589
  sin: 0 = 0; -0 = -0; inf = nan; nan = nan; 0.5 ~ 0.479425538604203; 1 ~ 0.8414709848078965;
      -3 ~ -0.1411200080598672; 100 ~ -0.5063656411097588
  cos: 0 = 1; -inf = nan; nan = nan; 0.5 ~ 0.8775825618903728; 1 ~ 0.5403023058681398; -3 ~ -0.9899924966004454;
      100 ~ 0.8623188722876839
  tan: 0 = 0; -0 = -0; inf = nan; 0.5 ~ 0.5463024898437905; 1 ~ 1.5574077246549023; -1.25 ~ -3.0095696738628313
  asin: 0 = 0; 2 = nan; nan = nan; 0.5 ~ 0.5235987755982989; 1 ~ 1.5707963267948966; -0.75 ~ -0.848062078981481
  acos: 1 = 0; -2 = nan; 0.5 ~ 1.0471975511965979; -1 ~ 3.141592653589793; 0 ~ 1.5707963267948966
  atan: 0 = 0; -0 = -0; nan = nan; 0.5 ~ 0.4636476090008061; 1 ~ 0.7853981633974483; -10 ~ -1.4711276743037347;
      inf ~ 1.5707963267948966
  sinh: 0 = 0; -inf = -inf; nan = nan; 0.5 ~ 0.5210953054937474; -3 ~ -10.017874927409903
  cosh: 0 = 1; -inf = inf; nan = nan; 0.5 ~ 1.1276259652063807; -3 ~ 10.067661995777765
  tanh: 0 = 0; -0 = -0; inf = 1; -inf = -1; 100 = 1; nan = nan; 0.5 ~ 0.46211715726000974;
      -0.0625 ~ -0.062418746747512514; 3 ~ 0.9950547536867305
  asinh: 0 = 0; inf = inf; nan = nan; 0.5 ~ 0.48121182505960347; -10 ~ -2.99822295029797
  acosh: 1 = 0; 0.5 = nan; inf = inf; 1.5 ~ 0.9624236501192069; 10 ~ 2.993222846126381
  atanh: 0 = 0; 1 = inf; -1 = -inf; 2 = nan; 0.5 ~ 0.5493061443340549; -0.875 ~ -1.354025100551105
  erf: 0 = 0; -0 = -0; inf = 1; -inf = -1; 30 = 1; nan = nan; 0.5 ~ 0.5204998778130465; -0.125 ~ -0.1403162048013338;
      2 ~ 0.9953222650189527
  erfc: 0 = 1; inf = 0; -inf = 2; nan = nan; 0.5 ~ 0.4795001221869535; -1 ~ 1.8427007929497148;
      4 ~ 1.541725790028002e-08
  erfinv: 0 = 0; 1 = inf; -1 = -inf; 1.5 = nan; nan = nan; 0.5 ~ 0.4769362762044699; -0.25 ~ -0.2253120550121781;
      0.875 ~ 1.0847870400692832
  lgamma: 1 = 0; 2 = 0; 0 = inf; -1 = inf; inf = inf; -inf = inf; nan = nan; 0.5 ~ 0.5723649429247001;
      4 ~ 1.791759469228055; 10 ~ 12.801827480081469; -1.5 ~ 0.860047015376481
  sigmoid: 0 = 0.5; inf = 1; -inf = 0; -1000 = 0; nan = nan; 1 ~ 0.7310585786300049; -1 ~ 0.2689414213699951;
      5 ~ 0.9933071490757152; -20 ~ 2.0611536181902037e-09
  logical_not: 0 = 1; -0 = 1; 0.5 = 0; nan = 0
  isfinite: 1 = 1; inf = 0; nan = 0
  isinf: -inf = 1; inf = 1; nan = 0; 1 = 0
  isnan: nan = 1; inf = 0; 1 = 0
  isneginf: -inf = 1; inf = 0; nan = 0; -1 = 0
  isposinf: inf = 1; -inf = 0; nan = 0; 1 = 0
  add: 1, 2 = 3; 0, -0 = 0; -0, -0 = -0; inf, -inf = nan; inf, 1 = inf; nan, 1 = nan
  sub: 1, 1 = 0; 2, 5 = -3; -0, 0 = -0; inf, inf = nan; 1, inf = -inf
  mul: 3, -2.5 = -7.5; -0, 2 = -0; -0, -2 = 0; inf, 0 = nan; -inf, 2 = -inf; nan, 0 = nan
  div: 7, 2 = 3.5; 1, 0 = inf; -1, 0 = -inf; 1, -0 = -inf; 0, 0 = nan; inf, inf = nan; -3, inf = -0;
      1, 3 ~ 0.3333333333333333; -2, 7 ~ -0.2857142857142857
  fmod: -7, 2 = -1; 7, -2 = 1; 5.5, 2 = 1.5; -0, 1 = -0; 7, 0 = nan; inf, 2 = nan; 5, inf = 5; nan, 2 = nan
  remainder: -7, 2 = 1; 7, -2 = -1; 7, 2 = 1; -7, -2 = -1; 5.5, 2 = 1.5; 7, 0 = nan; inf, 2 = nan; -5, inf = inf;
      5, inf = 5
  pow: 2, 10 = 1024; -2, 3 = -8; 4, 0.5 = 2; nan, 0 = 1; 1, nan = 1; -8, 0.5 = nan; 0, -1 = inf; -0, -3 = -inf;
      0.5, inf = 0; 2, -inf = 0; -1, inf = 1; inf, -1 = 0; nan, 1 = nan; 2, 0.5 ~ 1.4142135623730951;
      3, -2 ~ 0.1111111111111111; 0.5, 2.5 ~ 0.1767766952966369; 10, 0.125 ~ 1.333521432163324
  atan2: 0, 1 = 0; -0, 1 = -0; nan, 1 = nan; 1, 2 ~ 0.4636476090008061; -1, -2 ~ -2.677945044588987;
      1, -2 ~ 2.677945044588987; 0, -1 ~ 3.141592653589793; -3, 0.5 ~ -1.4056476493802699
  maximum: 2, 3 = 3; -inf, 1 = 1; nan, 1 = nan; 1, nan = nan
  minimum: 2, 3 = 2; inf, 1 = 1; nan, 1 = nan; 1, nan = nan
  nextafter: 1, 1 = 1; nan, 1 = nan
  eq: 1, 1 = 1; 0, -0 = 1; nan, nan = 0; inf, inf = 1
  ne: 1, 2 = 1; 0, -0 = 0; nan, nan = 1
  gt: 2, 1 = 1; 0, -0 = 0; nan, 1 = 0; inf, 1 = 1
  ge: 1, 1 = 1; 1, 2 = 0; nan, nan = 0; -0, 0 = 1
  lt: 1, 2 = 1; -0, 0 = 0; nan, 1 = 0; -inf, 1 = 1
  le: 1, 1 = 1; 2, 1 = 0; nan, nan = 0; 0, -0 = 1
  logical_and: nan, 1 = 1; 0, 1 = 0; 1, -0 = 0
  logical_or: -0, 0 = 0; 0, nan = 1
  logical_xor: 2, 3 = 0; 0, -0.5 = 1; 0, -0 = 0
  where: 1, 2.5, -3 = 2.5; 0, 2.5, -0 = -0; 0, nan, 1 = 1; 1, nan, 1 = nan
  fma: 2, 3, -1 = 5; 0x1.001p0, 0x1.001p0, -1 = 0x1.0008p-11; inf, 0, 1 = nan; nan, 1, 1 = nan
)";

// Neighbours, and results out of range.
inline constexpr const char* kFloatValues = R"(
  nextafter: 1, 2 = 0x1.000002p0; 1, 0 = 0x1.fffffep-1; 0, 1 = 0x1p-149; inf, 0 = 0x1.fffffep127
  add: 0x1.fffffep127, 0x1.fffffep127 = inf; 1, 0x1p-30 = 1
  mul: 0x1p-100, 0x1p-100 = 0; 0x1p-100, -0x1p-49 = -0x1p-149
  tanh: 9.5 = 1; -30 = -1
  exp: 89 = inf
)";
inline constexpr const char* kDoubleValues = R"(
  nextafter: 1, 2 = 0x1.0000000000001p0; 1, 0 = 0x1.fffffffffffffp-1; 0, 1 = 0x1p-1074;
      inf, 0 = 0x1.fffffffffffffp1023
  add: 0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023 = inf; 1, 0x1p-30 = 0x1.00000004p0
  mul: 0x1p-1000, 0x1p-1000 = 0; 0x1p-1000, -0x1p-74 = -0x1p-1074
  exp: 710 = inf
)";

// Of every integer type with a sign.
inline constexpr const char* kIntegerValues = R"(
  abs: -5 = 5; 0 = 0
  neg: 5 = -5
  sign: -9 = -1; 0 = 0; 4 = 1
  signbit: -1 = 1; 0 = 0
  bitwise_not: 5 = -6; 0 = -1
  logical_not: 0 = 1; -7 = 0
  add: 3, -5 = -2
  sub: 3, -5 = 8
  mul: -6, 7 = -42
  div: -7, 2 = -3; 7, -2 = -3; -7, -2 = 3; 7, 0 = 0
  mod: -7, 2 = -1; 7, -2 = 1; 7, 0 = 0
  fmod: -7, 2 = -1; 7, -2 = 1; 7, 0 = 0
  remainder: -7, 2 = 1; 7, -2 = -1; -8, 2 = 0; -7, -2 = -1; 7, 0 = 0
  ceilDiv: 7, 2 = 4; -7, 2 = -3; -7, -2 = 4; 6, 3 = 2; 7, 0 = 0
  pow: 3, 4 = 81; -2, 3 = -8; 2, -1 = 0; -1, -3 = -1; -1, -2 = 1; 1, -3 = 1; 0, 0 = 1; 0, -1 = 0
  maximum: -3, 2 = 2
  minimum: -3, 2 = -3
  gcd: -12, 18 = 6; 7, 13 = 1; 0, -5 = 5; 0, 0 = 0
  eq: 3, 3 = 1; 3, -3 = 0
  ne: 3, -3 = 1; 3, 3 = 0
  gt: 2, -1 = 1; 2, 2 = 0
  ge: 2, 2 = 1; -1, 2 = 0
  lt: -1, 2 = 1; 2, 2 = 0
  le: 2, 2 = 1; 2, -1 = 0
  bitwise_and: 12, 10 = 8; -1, 5 = 5
  bitwise_or: 12, 10 = 14
  bitwise_xor: 12, 10 = 6; -1, 5 = -6
  bitwise_left_shift: 3, 2 = 12; -3, 1 = -6; 1, 64 = 0; 1, -1 = 0
  bitwise_right_shift: 5, 1 = 2; -5, 1 = -3; 5, 64 = 0; -5, 64 = -1; 5, -1 = 0; -5, -1 = -1
  logical_and: 3, 4 = 1; 0, 4 = 0
  logical_or: 0, -4 = 1; 0, 0 = 0
  logical_xor: 3, 4 = 0; 3, 0 = 1
  where: 1, 5, -6 = 5; 0, 5, -6 = -6
)";
// L and H are the least and the greatest number of the type, W its bits, V one bit less. Arithmetic wraps.
inline constexpr const char* kIntegerEnds = R"(
  abs: L = L
  neg: L = L
  sign: L = -1
  signbit: L = 1
  bitwise_not: L = H
  add: H, 1 = L
  sub: L, 1 = H
  mul: L, -1 = L; H, 2 = -2
  div: L, -1 = L
  mod: L, -1 = 0
  fmod: L, -1 = 0
  remainder: L, -1 = 0
  ceilDiv: L, -1 = L
  pow: L, 2 = 0; 2, V = L
  gcd: L, 0 = L; L, L = L
  maximum: L, H = H
  minimum: L, H = L
  lt: L, H = 1
  gt: L, H = 0
  bitwise_left_shift: 1, V = L; 1, W = 0
  bitwise_right_shift: L, V = -1; L, W = -1
)";

// Of every integer type without a sign. Arithmetic wraps; H, W and V as above.
inline constexpr const char* kUnsignedValues = R"(
  abs: 5 = 5; H = H; 0 = 0
  neg: 1 = H; H = 1; 0 = 0
  sign: 9 = 1; H = 1; 0 = 0
  signbit: H = 0; 0 = 0
  bitwise_not: 0 = H; H = 0
  logical_not: 0 = 1; H = 0
  add: 3, 5 = 8; H, 1 = 0; H, H = M
  sub: 8, 5 = 3; 0, 1 = H; 3, 4 = H
  mul: 6, 7 = 42; H, 2 = M; H, H = 1
  div: 7, 2 = 3; H, 1 = H; 1, H = 0; H, H = 1; 7, 0 = 0
  mod: 7, 2 = 1; M, H = M; H, H = 0; 7, 0 = 0
  fmod: 7, 2 = 1; M, H = M; H, H = 0; 7, 0 = 0
  remainder: 7, 2 = 1; M, H = M; H, H = 0; 7, 0 = 0
  ceilDiv: 7, 2 = 4; 6, 3 = 2; 1, H = 1; H, 1 = H; 7, 0 = 0
  pow: 3, 4 = 81; 2, W = 0; H, 2 = 1; H, 3 = H; H, H = H; 0, 0 = 1
  maximum: H, 2 = H; 0, 1 = 1
  minimum: H, 2 = 2; 0, 1 = 0
  gcd: 12, 18 = 6; 7, 13 = 1; 0, H = H; 0, 0 = 0
  eq: 3, 3 = 1; 3, H = 0
  ne: 3, H = 1; 3, 3 = 0
  gt: H, 1 = 1; 2, 2 = 0
  ge: 2, 2 = 1; 1, H = 0
  lt: 1, H = 1; 2, 2 = 0
  le: 2, 2 = 1; H, 1 = 0
  bitwise_and: 12, 10 = 8; H, 5 = 5
  bitwise_or: 12, 10 = 14; H, 5 = H
  bitwise_xor: 12, 10 = 6; H, 1 = M
  bitwise_left_shift: 3, 2 = 12; 1, W = 0; H, 1 = M; 1, H = 0
  bitwise_right_shift: 5, 1 = 2; H, V = 1; H, W = 0; H, H = 0
  logical_and: 3, 4 = 1; 0, 4 = 0
  logical_or: 0, H = 1; 0, 0 = 0
  logical_xor: 3, 4 = 0; 3, 0 = 1
  where: 1, 5, H = 5; 0, 5, H = H
)";

inline constexpr const char* kBoolValues = R"(
  bitwise_not: 0 = 1; 1 = 0
  logical_not: 0 = 1; 1 = 0
  bitwise_and: 1, 1 = 1; 1, 0 = 0
  bitwise_or: 0, 1 = 1; 0, 0 = 0
  bitwise_xor: 1, 1 = 0; 0, 1 = 1
  logical_and: 1, 1 = 1; 0, 1 = 0
  logical_or: 0, 1 = 1; 0, 0 = 0
  logical_xor: 1, 1 = 0; 1, 0 = 1
  eq: 1, 1 = 1; 1, 0 = 0
  ne: 0, 1 = 1; 0, 0 = 0
  gt: 1, 0 = 1; 1, 1 = 0
  ge: 1, 1 = 1; 0, 1 = 0
  lt: 0, 1 = 1; 1, 1 = 0
  le: 1, 1 = 1; 1, 0 = 0
  where: 1, 0, 1 = 0; 0, 0, 1 = 1
)";

}  // namespace meshfuse
