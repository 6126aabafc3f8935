// combine_variance: a sum over a cut dim and the sum of squared distances from a value computed from it are combined from the sums
// of the parts, which one gather brings.
//
//   T0 [R, C] S1(x), n parts of c columns        S1(x), of each part: s = sum, m = s / c, q = sum of (T0 - m)^2, r = sum of T0 - m
//   T1 = combine(sum of T0)                  ->  s, q, r are gathered by one call
//   T2 = T1 / C                                  T1 = sum of s
//   T4 = combine(sum of (T0 - T2)^2)             T4 = sum of q + (m - T2) * (c (m - T2) + 2 r)
//
// Two all-reduces of a number a row, the second waiting for the first, become one all-gather of three numbers a row and part.
// The last line is an identity whatever m and T2 are. r would be 0 if m were exact: without it the rounding of m were to count once, and
// not as a square, which for rows far from zero is a hundred times what two all-reduces lose.
// Parts that are uneven are filled up to even ones that a mask leaves out; one without elements contributes nothing.
//
// It handles Float and Double, and dims that axes own in blocks of several elements; these axes own nothing of the result. It is done
// where it costs less: bytes received and PassSettings::callBytes a call, or as the planner's settings price them. The gathers
// are one call where they fit in PassSettings::bucketBytes, and rows that other axes own are even.
// Before: optimize_reshards, which may want the all-reduces for reduce-scatters. After: as before, every edge aligned or local but those of
// Redistributes. Idempotent. PassSettings::optimizeReshards switches it off.
#pragma once

namespace meshfuse {

class Fusion;
class PassContext;

bool combineVariance(Fusion& fusion, PassContext& context);

}  // namespace meshfuse
