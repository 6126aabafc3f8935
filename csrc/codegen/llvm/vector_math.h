// Elementary functions as straight-line IR over a float or a vector of floats. No tables, no branches, full range: infinities,
// NaN, overflow and subnormal results are right.
//
//   function  error in ULP   method
//   exp       1.1            x = n ln2 + r, degree 6 on |r| <= ln2/2, scaled by 2^n
//   exp2      1.1            the same without the first step
//   log       1.1            x = 2^k (1 + f), f - f^2/2 + f^3 P(f)
//   tanh      1.5            x + x^3 P(x^2) below 0.65, else 1 - 2 / (exp(2x) + 1)
//   erf       1.5            x + x Q(x^2) below 0.95, else 1 - exp(x R(x)), R fitted to log(erfc)
//   sigmoid   2.0            e / (1 + e), e = exp(-|x|)
//   rsqrt     1.0            1 / sqrt(x), both correctly rounded
// Without fused multiply-add the first three lose about half an ULP.
#pragma once

#include "codegen/llvm/emit.h"

namespace llvm {
class IRBuilderBase;
class Type;
class Value;
}  // namespace llvm

namespace meshfuse {

class VectorMath {
 public:
  VectorMath(llvm::IRBuilderBase& builder, const CpuTarget& target);

  llvm::Value* exp(llvm::Value* x);
  llvm::Value* exp2(llvm::Value* x);
  llvm::Value* log(llvm::Value* x);
  llvm::Value* tanh(llvm::Value* x);
  llvm::Value* erf(llvm::Value* x);
  llvm::Value* sigmoid(llvm::Value* x);

 private:
  llvm::Value* constant(llvm::Type* type, double value);
  llvm::Value* multiplyAdd(llvm::Value* x, llvm::Value* y, llvm::Value* z);
  llvm::Value* polynomial(llvm::Value* x, std::initializer_list<double> coefficients);  // highest power last
  llvm::Value* clamp(llvm::Value* x, double low, double high);                          // NaN stays
  llvm::Value* absolute(llvm::Value* x);
  llvm::Value* expReduced(llvm::Value* r, llvm::Value* n, llvm::Value* shifted);
  llvm::Value* scale(llvm::Value* p, llvm::Value* n, llvm::Value* shifted);

  llvm::IRBuilderBase& b_;
  bool fma_;
  bool avx512_;
};

}  // namespace meshfuse
