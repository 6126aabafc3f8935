// Prover: what is known of integer expressions beyond their normal form: facts "d divides e".
//
//   Prover p;
//   p.assumeDivides(x, n);          n = x * q from now on, q = floorDiv(n, x)
//   p.divide(n, x) == q             p.multiply(x, q) == n
//
// Sound under its facts, not complete: what it cannot show is unknown, never assumed.
#pragma once

#include <optional>
#include <vector>

#include "digits/int_expr.h"

namespace meshfuse {

class Prover {
 public:
  struct Fact {
    IntExpr divisor;
    IntExpr dividend;
    IntExpr quotient;
  };

  // From here on `dividend` is a multiple of `divisor`. A plan made under facts holds only where they do: guards come from facts().
  void assumeDivides(const IntExpr& divisor, const IntExpr& dividend);
  const std::vector<Fact>& facts() const { return facts_; }

  // a / b if b is proven to divide a.
  [[nodiscard]] std::optional<IntExpr> divide(const IntExpr& a, const IntExpr& b) const;
  // a * b, with divisor * quotient of a fact written as the dividend.
  [[nodiscard]] IntExpr multiply(const IntExpr& a, const IntExpr& b) const;
  [[nodiscard]] bool equal(const IntExpr& a, const IntExpr& b) const;

 private:
  std::vector<Fact> facts_;
};

}  // namespace meshfuse
