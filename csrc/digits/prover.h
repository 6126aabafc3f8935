// Prover: proves relations of integer expressions from their normal forms and from facts, "d divides e" and "a equals b".
//
//   Prover p;
//   p.assumeEqual(m, n * 4);        m is written n * 4 from now on
//   p.assumeDivides(x, n);          n = x * q from now on, q = floorDiv(n, x)
//   p.divide(n, x) == q             p.multiply(x, q) == n             p.canonical(m) == n * 4
//
// The prover is sound under its facts and not complete: a relation that it cannot prove is unknown, never assumed.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
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

  // From here on `dividend` is a multiple of `divisor`. A plan made under facts holds only if they hold: its
  // guards come from facts().
  void assumeDivides(const IntExpr& divisor, const IntExpr& dividend);
  const std::vector<Fact>& facts() const { return facts_; }

  // From here on `a` and `b` are equal. The prover keeps the fact if it determines the value of a symbol or of a multiple of a symbol, or
  // the range of a symbol (ceilDiv(symbol, k) == n). State equalities before divisibilities, which are stored in terms of them.
  void assumeEqual(const IntExpr& a, const IntExpr& b);
  // The expression with known values in place of symbols: expressions that are equal by these facts get the same text.
  [[nodiscard]] IntExpr canonical(const IntExpr& e) const;

  // a / b if b is proven to divide a.
  [[nodiscard]] std::optional<IntExpr> divide(const IntExpr& a, const IntExpr& b) const;
  // a * b, with divisor * quotient of a fact written as the dividend.
  [[nodiscard]] IntExpr multiply(const IntExpr& a, const IntExpr& b) const;
  [[nodiscard]] bool equal(const IntExpr& a, const IntExpr& b) const;

 private:
  std::vector<Fact> facts_;
  std::map<std::string, IntExpr, std::less<>> values_;  // of symbols; no value contains a listed symbol
};

}  // namespace meshfuse
