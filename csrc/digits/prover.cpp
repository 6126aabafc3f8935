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
    std::optional<IntExpr> k = divideExactly(a, fact.dividend);
    if (!k) {
      continue;
    }
    if (b == fact.divisor) {
      return *k * fact.quotient;
    }
    if (b == fact.quotient) {
      return *k * fact.divisor;
    }
    if (std::optional<IntExpr> rest = divideExactly(fact.divisor, b)) {
      return *k * *rest * fact.quotient;
    }
  }
  return std::nullopt;
}

IntExpr Prover::multiply(const IntExpr& a, const IntExpr& b) const {
  for (const Fact& fact : facts_) {
    for (const auto& [u, v] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      std::optional<IntExpr> k = divideExactly(*u, fact.divisor);
      std::optional<IntExpr> l = divideExactly(*v, fact.quotient);
      if (k && l) {
        return *k * *l * fact.dividend;
      }
    }
  }
  return a * b;
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
