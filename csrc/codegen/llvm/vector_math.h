// Elementary functions as straight-line IR over a float or a vector of floats, without branches. The range is full but for sin and cos:
// infinities, NaN, overflow and subnormal results are correct.
//
//   function  error in ULP   method
//   exp       1.1            x = n ln2 + r, degree 6 on |r| <= ln2/2, scaled by 2^n
//                            with AVX-512: n in sixteenths, a table of 2^(k/16), degree 3 on |r| <= ln2/32
//   exp2      1.1            of degree 6, without the first step
//   log       1.1            x = 2^k (1 + f), f - f^2/2 + f^3 P(f)
//   tanh      2.5            h / (h + 1), h = (exp(2x) - 1) / 2 = 2^n q + (2^n - 1) / 2
//   erf       2.0            x + x Q(x^2) below 0.95, else 1 - exp(x R(x)), R fitted to log(erfc)
//   sigmoid   3.6            1 / (1 + e) or e / (1 + e), e = exp(-|x|)
//   sin, cos  1.5            x = n pi/2 + r, degree 9 and 8 on |r| <= pi/4; for |x| <= kMostReduced, with fused multiply-add
//   rsqrt     1.0            1 / sqrt(x), both correctly rounded
// Without fused multiply-add the first three lose about half an ULP.
//
// Sigmoid has its largest error where e is just above a power of two and e / (1 + e) just below it, because one ULP of e is then two of the
// result: 2.2 of e, 1 of 1 + e, 0.6 of the reciprocal and 0.5 of the product are at most 4.3. These do not occur together: over all floats
// the largest error with AVX-512 is 3.53, at -3.444. Without the table, e is more exact.
//
// A function takes several vectors and emits each step for all of them. A core's scheduler sees about a hundred operations, and one vector
// takes a chain of forty: without interleaving, the chains of several vectors would hardly overlap.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/llvm/emit.h"
#include "ir/point_op.h"

namespace llvm {
class IRBuilderBase;
class Type;
class Value;
}  // namespace llvm

namespace meshfuse {

class VectorMath {
 public:
  using Group = std::vector<llvm::Value*>;  // of one type, float or a vector of floats

  VectorMath(llvm::IRBuilderBase& builder, const CpuTarget& target);

  Group exp(const Group& x);
  Group exp2(const Group& x);
  Group log(const Group& x);
  Group tanh(const Group& x);
  Group erf(const Group& x);
  Group sigmoid(const Group& x);
  // The same within 10 * 2^-24 of the result, for x >= kLeastCoarse and NaN; wrong for others. Only if hasCoarseSigmoid(x).
  Group coarseSigmoid(const Group& x);
  static constexpr double kLeastCoarse = -87;  // exp(-x) < 2^126
  bool hasCoarseSigmoid(const Group& x) const { return scalesByInstruction(x); }
  // Beyond kMostReduced the three parts of pi/2 do not suffice, and results are wrong; infinities give NaN.
  static constexpr double kMostReduced = 131072;
  bool reducesAngles() const { return fma_; }
  Group sin(const Group& x) { return sine(x, 0); }
  Group cos(const Group& x) { return sine(x, 1); }

  // Of floats, doubles or vectors of them. NaN if one is NaN.
  llvm::Value* maximum(llvm::Value* a, llvm::Value* b);
  llvm::Value* minimum(llvm::Value* a, llvm::Value* b);

 private:
  llvm::Value* better(PointOp op, llvm::Value* a, llvm::Value* b);
  llvm::Value* orNaN(llvm::Value* better, llvm::Value* a);
  llvm::Value* number(const Group& like, double value);
  Group spread(const Group& like, double value);  // a number for each vector of `like`
  static const Group& spread(const Group&, const Group& x) { return x; }
  template <class Y, class Z>
  Group multiplyAdd(const Group& x, const Y& y, const Z& z);  // x * y + z, where y and z are groups or numbers
  Group subtract(const Group& x, double y);
  Group negated(const Group& x);
  Group plus(const Group& x, const Group& y);
  Group times(const Group& x, const Group& y);
  Group polynomial(const Group& x, std::initializer_list<double> coefficients);  // highest power last
  Group atLeast(const Group& x, double low);                                     // NaN stays
  Group atMost(const Group& x, double high);                                     // NaN stays
  Group absolute(const Group& x);
  Group withSignOf(const Group& magnitude, const Group& x);
  Group selectBelow(const Group& x, double limit, const Group& below, const Group& above);
  Group zeroBelow(const Group& x, double limit, const Group& p);
  Group reciprocal(const Group& x);  // of normal numbers whose reciprocals are normal
  // exp(scale * x) within 2^-22, scale a power of two, for -87 < scale * x < 88: for use in a sum with a larger number.
  Group coarseExp(const Group& x, double scale);
  Group sine(const Group& x, int64_t quarters);  // of x + quarters * pi/2, quarters 0 or 1
  // A power of e, 2^floor(n) * p; `shifted` is n + kRounder if n is an integer.
  struct Power {
    Group p;
    Group n;
    Group shifted;
  };
  Power power(const Group& x);                     // for |x| < 2^10, without scaling
  Group rootsOfTwo(const Group& shifted);          // 2^(k/16), k: the low four bits of `shifted`
  bool scalesByInstruction(const Group& x) const;  // by 2^floor(n), also to infinity and to subnormal numbers
  Group scale(const Group& p, const Group& n, const Group& shifted);

  llvm::IRBuilderBase& b_;
  bool fma_;
  bool avx512_;
};

}  // namespace meshfuse
