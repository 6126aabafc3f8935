#include "digits/prover.h"

#include <algorithm>

namespace meshfuse {

namespace {

struct SymbolValue {
  std::string symbol;
  IntExpr value;
};

// The value that `difference` == 0 gives to one of its symbols: the one with the fewest declared facts, then the first by name. A symbol inside
// a quotient, or times another one, is not solved for.
std::optional<SymbolValue> solved(const IntExpr& difference) {
  std::optional<SymbolValue> found;
  int64_t declared = 0;
  for (const IntTerm& term : difference.terms()) {
    if (term.factors.size() != 1 || term.factors[0]->kind != AtomKind::Symbol) {
      continue;
    }
    const IntAtom& symbol = *term.factors[0];
    const std::optional<LinearForm> form = difference.linearIn(symbol.key);
    const std::optional<IntExpr> value =
        form && form->slope.isConst() ? divideExactly(IntExpr(0) - form->rest, form->slope) : std::nullopt;
    if (value && (!found || symbol.facts.divisor < declared)) {
      found = {symbol.key, *value};
      declared = symbol.facts.divisor;
    }
  }
  return found;
}

// The symbol of ceilDiv(symbol, k) == n, with the range that n leaves to it.
std::optional<SymbolValue> narrowed(const IntExpr& a, const IntExpr& b) {
  const IntAtomPtr* atom = a.atom();
  if (atom == nullptr || !b.isConst() || (*atom)->kind != AtomKind::CeilDiv) {
    return std::nullopt;
  }
  const IntExpr& dividend = (*atom)->args[0];
  const IntExpr& divisor = (*atom)->args[1];
  if (!dividend.isSymbol() || !divisor.isConst()) {
    return std::nullopt;
  }
  const IntAtom& symbol = **dividend.atom();
  SymbolFacts facts = symbol.facts;
  facts.lower = std::max(facts.lower, (b.constValue() - 1) * divisor.constValue() + 1);
  facts.upper = std::min(facts.upper, b.constValue() * divisor.constValue());
  if (facts.lower > facts.upper) {
    return std::nullopt;  // no number is both
  }
  return SymbolValue{symbol.key,
                     facts.lower == facts.upper ? IntExpr(facts.lower) : IntExpr::symbol(symbol.key, facts)};
}

}  // namespace

void Prover::assumeEqual(const IntExpr& a, const IntExpr& b) {
  const IntExpr left = canonical(a);
  const IntExpr right = canonical(b);
  std::optional<SymbolValue> known = left == right ? std::nullopt : solved(left - right);
  known = known ? known : narrowed(left, right);
  known = known ? known : narrowed(right, left);
  if (!known) {
    return;
  }
  for (auto& [symbol, value] : values_) {
    value = value.substitute([&](std::string_view name) {
      return name == known->symbol ? std::optional<IntExpr>(known->value) : std::nullopt;
    });
  }
  values_[known->symbol] = known->value;
}

IntExpr Prover::canonical(const IntExpr& e) const {
  if (values_.empty() || e.isConst()) {
    return e;
  }
  return e.substitute([&](std::string_view name) {
    const auto known = values_.find(name);
    return known == values_.end() ? std::nullopt : std::optional<IntExpr>(known->second);
  });
}

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
    if (!k) {
      continue;
    }
    if (std::optional<IntExpr> q = divideExactly(*k * fact.divisor * fact.quotient, b)) {
      return q;
    }
    // the product may be written as the dividend
    if (std::optional<IntExpr> q = divideExactly(*k * fact.quotient, b)) {
      return *q * fact.divisor;
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
  return a == b || std::ranges::any_of(facts_, [&](const Fact& fact) {
           const IntExpr product = fact.divisor * fact.quotient;
           return (a == fact.dividend && b == product) || (b == fact.dividend && a == product);
         });
}

}  // namespace meshfuse
