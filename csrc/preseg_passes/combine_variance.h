// combine_variance: computes the sum over a cut dim, and the sum of squared distances from a value that depends on it, from the sums of
// the parts, which need one all-gather.
//
//   T0 [R, C] S1(x), n parts of c columns        S1(x), of each part: s = sum, m = s / c, q = sum of (T0 - m)^2, r = sum of T0 - m
//   T1 = combine(sum of T0)                  ->  s, q, r are gathered by one call
//   T2 = T1 / C                                  T1 = sum of s
//   T4 = combine(sum of (T0 - T2)^2)             T4 = sum of q + (m - T2) * (c (m - T2) + 2 r)
//
// Two all-reduces of one number per row, where the second waits for the first, become one all-gather of three numbers per row and part.
// The last line is an identity for any m and T2. r would be 0 if m were exact. Without r the rounding error of m would enter linearly and
// not squared: for rows far from zero, the error would be a hundred times that of two all-reduces.
// Uneven parts are padded to even ones, and a mask excludes the padding; a part without elements contributes nothing.
//
// It handles Float and Double, and dims that axes own in blocks of several elements; these axes must not own digits of the result. It runs
// if it costs less: bytes received plus PassSettings::callBytes for each call, or the costs of the planner's settings. The gathers become
// one call if they fit into PassSettings::bucketBytes and if rows that other axes own are even.
// Runs after optimize_reshards, which may have turned some all-reduces into reduce-scatters. On exit, as before, every edge is aligned or
// local, except edges of Redistributes and of windows with a halo exchange. Idempotent. PassSettings::optimizeReshards switches it off.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool combineVariance(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
