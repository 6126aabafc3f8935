#include "digits/prover.h"

namespace meshfuse {

void Prover::assumeDivides(const IntExpr& divisor, const IntExpr& dividend) {
  if (!divide(dividend, divisor)) {
    facts_.push_back({divisor, dividend, floorDiv(dividend, divisor)});
  }
}

std::optional<IntExpr> Prover::divide(const IntExpr& a, const IntExpr& b) const {
  if (b.isConst(0)) {
    return std::nullopt;
  }
  if (a == b) {
    return IntExpr(1);
  }
  if (std::optional<IntExpr> exact = divideExactly(a, b)) {
    return exact;
  }
  for (const Fact& fact : facts_) {
    // a = k * dividend = k * quotient * divisor
    const std::optional<IntExpr> k = divideExactly(a, fact.dividend);
    if (std::optional<IntExpr> q = k ? divideExactly(*k * fact.divisor * fact.quotient, b) : std::nullopt) {
      return q;
    }
  }
  return std::nullopt;
}

IntExpr Prover::multiply(const IntExpr& a, const IntExpr& b) const {
  const IntExpr product = a * b;
  if (product.isConst()) {
    return product;
  }
  for (const Fact& fact : facts_) {
    if (std::optional<IntExpr> k = divideExactly(product, fact.divisor * fact.quotient)) {
      return *k * fact.dividend;
    }
  }
  return product;
}

bool Prover::equal(const IntExpr& a, const IntExpr& b) const {
  if (a == b) {
    return true;
  }
  for (const Fact& fact : facts_) {
    const IntExpr product = fact.divisor * fact.quotient;
    if ((a == fact.dividend && b == product) || (b == fact.dividend && a == product)) {
      return true;
    }
  }
  return false;
}

}  // namespace meshfuse
