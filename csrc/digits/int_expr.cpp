#include "digits/int_expr.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "base/error.h"
#include "base/exact.h"
#include "base/not_constant.h"
#include "base/ranges.h"

namespace meshfuse {

namespace {

[[noreturn]] void throwDivisor(const IntExpr& a, const IntExpr& b) {
  throwUserError(
      fmt::format("[sizes] got {} divided by {}, expected a divisor of at least 1; change the number it follows from",
                  a.toString(), b.toString()));
}

void checkDivisor(int64_t a, int64_t b) {
  if (b < 1) [[unlikely]] {
    throwDivisor(a, b);
  }
}

void checkDivisor(const IntExpr& a, const IntExpr& b) {
  if (b.isConst() && b.constValue() < 1) [[unlikely]] {
    throwDivisor(a, b);
  }
}

int64_t floorDivide(int64_t a, int64_t b) {
  checkDivisor(a, b);
  return a / b - (a % b < 0 ? 1 : 0);
}

int64_t ceilDivide(int64_t a, int64_t b) {
  checkDivisor(a, b);
  return a / b + (a % b > 0 ? 1 : 0);
}

// What floorDivide leaves.
int64_t modulo(int64_t a, int64_t b) {
  checkDivisor(a, b);
  return a % b + (a % b < 0 ? b : 0);
}

// Of the lowest number, which has none in 64 bits, a divisor of it.
int64_t magnitude(int64_t a) { return a == INT64_MIN ? int64_t{1} << 62 : std::abs(a); }

// The quotient of the lowest number and -1 has none in 64 bits.
bool divides(int64_t k, int64_t a) { return k == -1 ? a != INT64_MIN : a % k == 0; }

// No program has expressions of more terms or factors; sums and products of many take time that grows with the square.
constexpr size_t kMostTerms = 2048;
constexpr size_t kMostFactors = 256;

void checkTerms(size_t terms) {
  check(terms <= kMostTerms, "[sizes] got an expression of {} terms, expected at most {}; give parts of it as inputs",
        terms, kMostTerms);
}

// Bounds with infinities as nullopt.
using Bound = std::optional<int64_t>;

Bound addBound(Bound a, Bound b) { return a && b ? addedIfExact(*a, *b) : std::nullopt; }

Bound mulBound(Bound a, Bound b) { return a && b ? multipliedIfExact(*a, *b) : std::nullopt; }

struct Range {
  Bound lower;
  Bound upper;
};

Range scale(Range r, int64_t k) {
  Range s{mulBound(r.lower, k), mulBound(r.upper, k)};
  if (k < 0) {
    std::swap(s.lower, s.upper);
  }
  return s;
}

Range rangeOf(const IntAtom& atom) {
  return {atom.facts.lower == INT64_MIN ? Bound{} : Bound{atom.facts.lower},
          atom.facts.upper == INT64_MAX ? Bound{} : Bound{atom.facts.upper}};
}

// Only products of non-negative factors are bounded; everything the compiler multiplies is non-negative.
Range rangeOf(const IntTerm& term) {
  Range r{1, 1};
  for (const IntAtomPtr& f : term.factors) {
    Range a = rangeOf(*f);
    if (!a.lower || *a.lower < 0) {
      return term.factors.size() == 1 ? scale(a, term.coefficient) : Range{};
    }
    r.lower = mulBound(r.lower, a.lower);
    r.upper = mulBound(r.upper, a.upper);
  }
  r.lower = r.lower.value_or(0);
  return scale(r, term.coefficient);
}

constexpr auto keyOf = [](const IntAtomPtr& atom) -> const std::string& { return atom->key; };

bool factorsLess(const IntTerm& a, const IntTerm& b) {
  return std::ranges::lexicographical_compare(a.factors, b.factors, {}, keyOf, keyOf);
}

bool sameAtoms(const std::vector<IntAtomPtr>& a, const std::vector<IntAtomPtr>& b) {
  return std::ranges::equal(a, b, {}, keyOf, keyOf);
}

bool sameFactors(const IntTerm& a, const IntTerm& b) { return sameAtoms(a.factors, b.factors); }

}  // namespace

struct IntExprBuilder {
  static IntExpr make(int64_t constant, std::vector<IntTerm> terms) {
    return rejoin(collect(constant, std::move(terms)));
  }

  // Like terms collected, for terms of one expression, all divided by one number: no two of those can be rejoined.
  static IntExpr collect(int64_t constant, std::vector<IntTerm> terms) {
    std::ranges::sort(terms, factorsLess);
    std::vector<IntTerm> collected;
    for (IntTerm& t : terms) {
      if (!collected.empty() && sameFactors(collected.back(), t)) {
        collected.back().coefficient = addExact(collected.back().coefficient, t.coefficient);
      } else {
        collected.push_back(std::move(t));
      }
      if (collected.back().coefficient == 0) {
        collected.pop_back();
      }
    }
    return {constant, std::move(collected)};
  }

  // A term as numerator / denominator * product of bases: floorDiv(x, k) where k divides x by facts is x / k.
  struct Fraction {
    int64_t numerator;
    int64_t denominator;
    std::vector<IntAtomPtr> bases;  // sorted
  };

  static const IntAtomPtr* exactBase(const IntAtom& atom) {
    const bool isFraction = atom.kind == AtomKind::FloorDiv && atom.args[1].isConst();
    const IntAtomPtr* x = isFraction ? atom.args[0].atom() : nullptr;
    return x != nullptr && (*x)->facts.divisor % atom.args[1].constant_ == 0 ? x : nullptr;
  }

  static Fraction fraction(const IntTerm& t) {
    Fraction f{t.coefficient, 1, {}};
    for (const IntAtomPtr& atom : t.factors) {
      const IntAtomPtr* base = exactBase(*atom);
      f.denominator = base == nullptr ? f.denominator : mulExact(f.denominator, atom->args[1].constant_);
      f.bases.push_back(base == nullptr ? atom : *base);
    }
    sortAtoms(f.bases);
    return f;
  }

  // Lowest terms; the denominator goes to the first bases that can take of it. nullopt if the facts leave some of it.
  static std::optional<IntTerm> toTerm(const Fraction& f) {
    int64_t g = std::gcd(f.numerator, f.denominator);
    int64_t denominator = f.denominator / g;
    IntTerm t{f.numerator / g, {}};
    for (const IntAtomPtr& base : f.bases) {
      int64_t k = std::gcd(denominator, base->facts.divisor);
      denominator /= k;
      if (k == 1) {
        t.factors.push_back(base);
        continue;
      }
      SymbolFacts facts = base->facts;
      facts.lower = facts.lower == INT64_MIN ? INT64_MIN : floorDivide(facts.lower, k);
      facts.upper = facts.upper == INT64_MAX ? INT64_MAX : floorDivide(facts.upper, k);
      facts.divisor /= k;
      t.factors.push_back(functionAtom(AtomKind::FloorDiv, product({1, {base}}), k, facts));
    }
    sortAtoms(t.factors);
    return denominator == 1 ? std::optional<IntTerm>(std::move(t)) : std::nullopt;
  }

  // Terms in the same bases become one: N + floorDiv(N, 4) = floorDiv(N, 4)*5 where 4 divides N.
  static void joinFractions(IntExpr& e) {
    if (std::ranges::none_of(e.terms(), holdsFraction)) {
      return;
    }
    std::vector<Fraction> sums;
    for (const IntTerm& t : e.terms()) {
      Fraction f = fraction(t);
      auto same = std::ranges::find_if(sums, [&](const Fraction& s) { return sameAtoms(s.bases, f.bases); });
      if (same == sums.end()) {
        sums.push_back(std::move(f));
        continue;
      }
      int64_t common = mulExact(same->denominator / std::gcd(same->denominator, f.denominator), f.denominator);
      same->numerator = addExact(mulExact(same->numerator, common / same->denominator),
                                 mulExact(f.numerator, common / f.denominator));
      same->denominator = common;
      for (int64_t i = 0; i < std::ssize(f.bases); i++) {  // the instance that knows more
        if (f.bases[i]->facts.divisor > same->bases[i]->facts.divisor) {
          same->bases[i] = f.bases[i];
        }
      }
    }
    std::erase_if(sums, [](const Fraction& f) { return f.numerator == 0; });
    std::vector<IntTerm> terms;
    for (const Fraction& f : sums) {
      std::optional<IntTerm> t = toTerm(f);
      if (!t) {
        return;
      }
      terms.push_back(std::move(*t));
    }
    std::ranges::sort(terms, factorsLess);
    e = {e.constant_, std::move(terms)};
  }

  static IntExpr product(IntTerm t) { return t.factors.empty() ? IntExpr(t.coefficient) : IntExpr(0, {std::move(t)}); }

  // A constant, or a coefficient times atoms.
  static bool isProduct(const IntExpr& e) { return e.isConst() || (e.constant_ == 0 && e.terms().size() == 1); }
  static IntTerm factorsOf(const IntExpr& product) {
    return product.isConst() ? IntTerm{product.constant_, {}} : product.terms()[0];
  }

  // floorDiv(a, b) * b + mod(a, b) = a, with any common factor.
  static IntExpr rejoin(IntExpr e) {
    joinFractions(e);
    const std::span<const IntTerm> terms = e.terms();
    if (terms.size() < 2) {
      return e;
    }
    for (const IntTerm& t : terms) {
      for (const IntAtomPtr& remainder : t.factors) {
        if (remainder->kind != AtomKind::Mod || !isProduct(remainder->args[1])) {
          continue;
        }
        IntExpr quotient = floorDiv(remainder->args[0], remainder->args[1]);
        if (quotient.constant_ != 0 || quotient.terms().size() != 1 || quotient.terms()[0].coefficient != 1) {
          continue;
        }
        IntTerm common = t;
        common.factors.erase(std::ranges::find(common.factors, remainder));
        const IntTerm divisor = factorsOf(remainder->args[1]);
        IntTerm wanted{0, common.factors};
        if (__builtin_mul_overflow(common.coefficient, divisor.coefficient, &wanted.coefficient)) {
          continue;
        }
        append(wanted.factors, divisor.factors);
        append(wanted.factors, quotient.terms()[0].factors);
        sortAtoms(wanted.factors);
        const auto multiple = std::ranges::find_if(terms, [&](const IntTerm& u) {
          return &u != &t && u.coefficient == wanted.coefficient && sameFactors(u, wanted);
        });
        if (multiple != terms.end()) {
          std::vector<IntTerm> rest = filtered(terms, [&](const IntTerm& u) { return &u != &t && &u != &*multiple; });
          return IntExpr(e.constant_, std::move(rest)) + product(common) * remainder->args[0];
        }
      }
    }
    return e;
  }

  static void sortAtoms(std::vector<IntAtomPtr>& atoms) { std::ranges::sort(atoms, {}, keyOf); }

  static IntAtomPtr functionAtom(AtomKind kind, const IntExpr& a, const IntExpr& b, SymbolFacts facts) {
    auto atom = std::make_shared<IntAtom>();
    atom->kind = kind;
    atom->key = fmt::format("{}({}, {})", functionOf(kind).name, a.toString(), b.toString());
    atom->facts = facts;
    atom->args = {a, b};
    atom->size = 1 + a.size() + b.size();
    return atom;
  }
  static IntExpr function(AtomKind kind, const IntExpr& a, const IntExpr& b, SymbolFacts facts) {
    return make(0, {{1, {functionAtom(kind, a, b, facts)}}});
  }

  // An expression divided by k, term by term. `multiples`: quotients of terms with a coefficient that k divides. `byFacts`: quotients of
  // terms that k divides by the facts of their factors. `rest`: the other terms, not divided.
  struct Quotients {
    IntExpr multiples;
    IntExpr byFacts;
    IntExpr rest;
  };
  static Quotients quotients(const IntExpr& e, int64_t k) {
    const int64_t q = floorDivide(e.constant_, k);
    std::vector<IntTerm> multiples;
    std::vector<IntTerm> byFacts;
    std::vector<IntTerm> rest;
    for (const IntTerm& t : e.terms()) {
      if (divides(k, t.coefficient)) {
        multiples.push_back({t.coefficient / k, t.factors});
        continue;
      }
      Fraction f = fraction(t);
      std::optional<IntTerm> quotient;
      if (product(t).divisor() % k == 0 && !__builtin_mul_overflow(f.denominator, k, &f.denominator)) {
        quotient = toTerm(f);
      }
      (quotient ? byFacts : rest).push_back(quotient ? std::move(*quotient) : t);
    }
    return {collect(q, std::move(multiples)), make(0, std::move(byFacts)),
            collect(modulo(e.constant_, k), std::move(rest))};
  }

  static bool holdsFraction(const IntTerm& t) {
    return std::ranges::any_of(t.factors, [](const IntAtomPtr& f) { return exactBase(*f) != nullptr; });
  }

  // Removes the factors `b` from `a`; false if `a` lacks one of them.
  static bool removeAll(std::vector<IntAtomPtr>& a, const std::vector<IntAtomPtr>& b) {
    return std::ranges::all_of(b, [&](const IntAtomPtr& factor) {
      const auto it = std::ranges::find(a, factor->key, keyOf);
      const bool found = it != a.end();
      if (found) {
        a.erase(it);
      }
      return found;
    });
  }

  // t / b; a term without factors is a number.
  static std::optional<IntTerm> divideTerm(const IntTerm& t, const IntTerm& b) {
    IntTerm quotient{0, t.factors};
    if (divides(b.coefficient, t.coefficient) && removeAll(quotient.factors, b.factors)) {
      quotient.coefficient = t.coefficient / b.coefficient;
      return quotient;
    }
    if (b.coefficient < 0 || !holdsFraction(b)) {
      return std::nullopt;
    }
    // floorDiv(N, 4) by floorDiv(N, 12), where 12 divides N, is 3
    Fraction above = fraction(t);
    const Fraction below = fraction(b);
    const bool divides = removeAll(above.bases, below.bases) &&
                         !__builtin_mul_overflow(above.numerator, below.denominator, &above.numerator) &&
                         !__builtin_mul_overflow(above.denominator, below.numerator, &above.denominator);
    return divides ? toTerm(above) : std::nullopt;
  }

  // The number k with a = k*b, where b has terms.
  static std::optional<IntExpr> multiple(const IntExpr& a, const IntExpr& b) {
    if (a.terms().size() != b.terms().size() || !divides(b.terms()[0].coefficient, a.terms()[0].coefficient)) {
      return std::nullopt;
    }
    const int64_t k = a.terms()[0].coefficient / b.terms()[0].coefficient;
    const auto isMultiple = [k](int64_t x, int64_t y) { return multipliedIfExact(y, k) == x; };
    const bool isExact = isMultiple(a.constant_, b.constant_) &&
                         std::ranges::equal(a.terms(), b.terms(), [&](const IntTerm& x, const IntTerm& y) {
                           return isMultiple(x.coefficient, y.coefficient) && sameFactors(x, y);
                         });
    return isExact ? std::optional<IntExpr>(k) : std::nullopt;
  }

  static std::optional<IntExpr> divide(const IntExpr& a, const IntExpr& b) {
    if (b.isConst(0)) {
      return std::nullopt;
    }
    if (b.terms().size() + (b.constant_ != 0 ? 1 : 0) != 1) {
      return multiple(a, b);
    }
    int64_t k = b.terms().empty() ? b.constant_ : b.terms()[0].coefficient;
    if (a.isConst() && b.isConst()) {
      return divides(k, a.constant_) ? std::optional<IntExpr>(a.constant_ / k) : std::nullopt;
    }
    if (!divides(k, a.constant_) || (!b.terms().empty() && a.constant_ != 0)) {
      return std::nullopt;
    }
    int64_t constant = a.constant_ / k;
    const IntTerm divisor = b.terms().empty() ? IntTerm{k, {}} : b.terms()[0];
    std::vector<IntTerm> quotient;
    for (const IntTerm& t : a.terms()) {
      std::optional<IntTerm> q = divideTerm(t, divisor);
      if (!q) {
        return std::nullopt;
      }
      if (q->factors.empty()) {
        constant = addExact(constant, q->coefficient);
      } else {
        quotient.push_back(std::move(*q));
      }
    }
    return make(constant, std::move(quotient));
  }
};

IntExpr::IntExpr(int64_t constant, std::vector<IntTerm> terms) : constant_(constant) {
  checkTerms(terms.size());
  if (!terms.empty()) {
    terms_ = std::make_shared<const std::vector<IntTerm>>(std::move(terms));
  }
}

IntExpr IntExpr::symbol(std::string name, SymbolFacts facts) {
  auto atom = std::make_shared<IntAtom>();
  atom->kind = AtomKind::Symbol;
  atom->key = std::move(name);
  atom->facts = facts;
  return IntExprBuilder::make(0, {{1, {std::move(atom)}}});
}

int64_t IntExpr::constValue() const {
  if (!isConst()) [[unlikely]] {  // an expression is printed only for a message: this is called everywhere
    throw NotConstantError(fmt::format("[int_expr] {} is not a constant", toString()));
  }
  return constant_;
}

int64_t IntExpr::size() const {
  const auto sizeOf = [](const IntAtomPtr& f) { return f->size; };
  return sumOf(terms(), [&](const IntTerm& t) { return sumOf(t.factors, sizeOf); });
}

const IntAtomPtr* IntExpr::atom() const {
  const bool isAtom =
      constant_ == 0 && terms().size() == 1 && terms()[0].coefficient == 1 && terms()[0].factors.size() == 1;
  return isAtom ? terms()[0].factors.data() : nullptr;
}

bool IntExpr::isSymbol() const { return atom() != nullptr && (*atom())->kind == AtomKind::Symbol; }

std::string_view IntExpr::symbolName() const {
  invariant(isSymbol(), "[int_expr] {} is not a symbol", toString());
  return (*atom())->key;
}

IntExpr operator+(const IntExpr& a, const IntExpr& b) {
  if (a.isConst() || b.isConst()) {
    IntExpr sum = b.isConst() ? a : b;
    sum.constant_ = addExact(a.constant_, b.constant_);
    return sum;
  }
  std::vector<IntTerm> terms(a.terms().begin(), a.terms().end());
  terms.insert(terms.end(), b.terms().begin(), b.terms().end());
  return IntExprBuilder::make(addExact(a.constant_, b.constant_), std::move(terms));
}

IntExpr operator-(const IntExpr& a, const IntExpr& b) { return a + b * IntExpr(-1); }

IntExpr operator*(const IntExpr& a, const IntExpr& b) {
  if (a.isConst() && b.isConst()) {
    return mulExact(a.constant_, b.constant_);
  }
  if (a.isConst(1) || b.isConst(1)) {
    return a.isConst(1) ? b : a;
  }
  checkTerms(a.terms().size() * b.terms().size());
  std::vector<IntTerm> terms;
  for (const IntTerm& t : a.terms()) {
    if (b.constant_ != 0) {
      terms.push_back({mulExact(t.coefficient, b.constant_), t.factors});
    }
    for (const IntTerm& u : b.terms()) {
      IntTerm product{mulExact(t.coefficient, u.coefficient), t.factors};
      product.factors.insert(product.factors.end(), u.factors.begin(), u.factors.end());
      check(product.factors.size() <= kMostFactors,
            "[sizes] got a product of {} factors, expected at most {}; give parts of it as inputs",
            product.factors.size(), kMostFactors);
      IntExprBuilder::sortAtoms(product.factors);
      terms.push_back(std::move(product));
    }
  }
  if (a.constant_ != 0) {
    for (const IntTerm& u : b.terms()) {
      terms.push_back({mulExact(a.constant_, u.coefficient), u.factors});
    }
  }
  return IntExprBuilder::make(mulExact(a.constant_, b.constant_), std::move(terms));
}

bool operator==(const IntExpr& a, const IntExpr& b) {
  return a.constant_ == b.constant_ &&
         (a.terms_ == b.terms_ || std::ranges::equal(a.terms(), b.terms(), [](const IntTerm& x, const IntTerm& y) {
            return x.coefficient == y.coefficient && sameFactors(x, y);
          }));
}

int64_t IntExpr::divisor() const {
  int64_t g = magnitude(constant_);
  for (const IntTerm& t : terms()) {
    int64_t d = magnitude(t.coefficient);
    for (const IntAtomPtr& f : t.factors) {
      const std::optional<int64_t> more = multipliedIfExact(d, std::max<int64_t>(1, f->facts.divisor));
      if (!more) {
        d = magnitude(t.coefficient);
        break;
      }
      d = *more;
    }
    g = std::gcd(g, d);
  }
  return g;
}

bool IntExpr::divisibleBy(int64_t k) const { return divisor() % k == 0; }

std::optional<int64_t> IntExpr::lower() const {
  return std::accumulate(terms().begin(), terms().end(), Bound(constant_),
                         [](Bound sum, const IntTerm& t) { return addBound(sum, rangeOf(t).lower); });
}

std::optional<int64_t> IntExpr::upper() const {
  return std::accumulate(terms().begin(), terms().end(), Bound(constant_),
                         [](Bound sum, const IntTerm& t) { return addBound(sum, rangeOf(t).upper); });
}

namespace {

// 0 <= e < k
bool within(const IntExpr& e, int64_t k) { return e.lower().value_or(-1) >= 0 && e.upper().value_or(k) < k; }

// A quotient by a product with a factor that the dividend has too is one without it: divisors are positive.
bool cancelCommonFactors(IntExpr& dividend, IntExpr& divisor) {
  if (divisor.terms().size() != 1 || divisor.constantTerm() != 0) {
    return false;
  }
  bool cancelled = false;
  for (const IntAtomPtr& atom : std::vector<IntAtomPtr>(divisor.terms()[0].factors)) {
    const IntExpr factor = IntExprBuilder::product({1, {atom}});
    if (std::optional<IntExpr> rest = divideExactly(dividend, factor)) {
      divisor = *divideExactly(divisor, factor);
      dividend = std::move(*rest);
      cancelled = true;
    }
  }
  return cancelled;
}

}  // namespace

SymbolFacts factsBelow(const IntExpr& count) {
  std::optional<int64_t> upper = count.upper();
  return {0, upper ? std::max<int64_t>(1, *upper) - 1 : INT64_MAX, 1};
}

IntExpr floorDiv(const IntExpr& a, const IntExpr& b) {
  checkDivisor(a, b);
  if (b.isConst(1) || a.isConst(0)) {
    return a;
  }
  if (std::optional<IntExpr> exact = divideExactly(a, b)) {
    return *exact;
  }
  if (b.isConst()) {
    int64_t k = b.constValue();
    if (a.isConst()) {
      return floorDivide(a.constValue(), k);
    }
    auto [multiples, byFacts, rest] = IntExprBuilder::quotients(a, k);
    IntExpr quotient = multiples + byFacts;
    if (within(rest, k)) {
      return quotient;
    }
    if (!quotient.isConst(0)) {
      return quotient + floorDiv(rest, b);
    }
    int64_t g = std::gcd(a.divisor(), k);
    if (g > 1 && divideExactly(a, g)) {
      return floorDiv(*divideExactly(a, g), k / g);
    }
    if (const IntAtomPtr* inner = a.atom(); inner != nullptr && (*inner)->kind == AtomKind::FloorDiv) {
      return floorDiv((*inner)->args[0], (*inner)->args[1] * b);
    }
  } else if (a.lower().value_or(-1) >= 0 && provenLess(a, b)) {
    return 0;
  } else if (IntExpr dividend = a, divisor = b; cancelCommonFactors(dividend, divisor)) {
    return floorDiv(dividend, divisor);
  }
  SymbolFacts facts{INT64_MIN, INT64_MAX, 1};
  if (a.lower() && (*a.lower() >= 0 || b.isConst())) {
    facts.lower = b.isConst() ? floorDivide(*a.lower(), b.constValue()) : 0;
  }
  if (a.upper() && b.isConst()) {
    facts.upper = floorDivide(*a.upper(), b.constValue());
  } else if (a.upper() && *a.upper() >= 0) {
    facts.upper = *a.upper();
  }
  return IntExprBuilder::function(AtomKind::FloorDiv, a, b, facts);
}

IntExpr ceilDiv(const IntExpr& a, const IntExpr& b) {
  checkDivisor(a, b);
  if (std::optional<IntExpr> exact = divideExactly(a, b)) {
    return *exact;
  }
  if (b.isConst()) {
    int64_t k = b.constValue();
    if (a.isConst()) {
      return ceilDivide(a.constValue(), k);
    }
    auto [multiples, byFacts, rest] = IntExprBuilder::quotients(a, k);
    if (!multiples.isConst(0) || !byFacts.isConst(0)) {
      return multiples + byFacts + ceilDiv(rest, b);
    }
  } else if (a.lower().value_or(0) > 0 && provenLessEqual(a, b)) {
    return 1;
  } else if (IntExpr dividend = a, divisor = b; cancelCommonFactors(dividend, divisor)) {
    return ceilDiv(dividend, divisor);
  }
  SymbolFacts facts{INT64_MIN, INT64_MAX, 1};
  if (a.lower() && *a.lower() >= 0) {
    facts.lower = b.isConst() ? ceilDivide(*a.lower(), b.constValue()) : std::min<int64_t>(*a.lower(), 1);
  }
  if (a.upper() && *a.upper() >= 0) {
    facts.upper = b.isConst() ? ceilDivide(*a.upper(), b.constValue()) : *a.upper();
  }
  return facts.lower == facts.upper ? facts.lower : IntExprBuilder::function(AtomKind::CeilDiv, a, b, facts);
}

IntExpr mod(const IntExpr& a, const IntExpr& b) {
  checkDivisor(a, b);
  if (b.isConst(1) || divideExactly(a, b)) {
    return 0;
  }
  if (b.isConst()) {
    int64_t k = b.constValue();
    if (a.isConst()) {
      return modulo(a.constValue(), k);
    }
    auto [multiples, byFacts, rest] = IntExprBuilder::quotients(a, k);
    if (within(rest, k)) {
      return rest;
    }
    if (!multiples.isConst(0) || !byFacts.isConst(0)) {
      return mod(rest, b);
    }
    return IntExprBuilder::function(AtomKind::Mod, a, b, {0, k - 1, std::gcd(a.divisor(), k)});
  }
  if (a.lower().value_or(-1) >= 0 && provenLess(a, b)) {
    return a;
  }
  return IntExprBuilder::function(AtomKind::Mod, a, b, factsBelow(b));
}

namespace {

// min or max, which `pick` is for numbers.
IntExpr picked(AtomKind kind, const IntExpr& a, const IntExpr& b, int64_t (*pick)(int64_t, int64_t)) {
  const int64_t lower = pick(a.lower().value_or(INT64_MIN), b.lower().value_or(INT64_MIN));
  const int64_t upper = pick(a.upper().value_or(INT64_MAX), b.upper().value_or(INT64_MAX));
  const SymbolFacts facts{lower, upper, std::gcd(a.divisor(), b.divisor())};
  return b.toString() < a.toString() ? IntExprBuilder::function(kind, b, a, facts)
                                     : IntExprBuilder::function(kind, a, b, facts);
}

}  // namespace

IntExpr min(const IntExpr& a, const IntExpr& b) {
  return provenLessEqual(a, b)   ? a
         : provenLessEqual(b, a) ? b
                                 : picked(AtomKind::Min, a, b, [](int64_t x, int64_t y) { return std::min(x, y); });
}

IntExpr max(const IntExpr& a, const IntExpr& b) {
  return provenLessEqual(a, b)   ? b
         : provenLessEqual(b, a) ? a
                                 : picked(AtomKind::Max, a, b, [](int64_t x, int64_t y) { return std::max(x, y); });
}

IntExpr product(std::span<const IntExpr> factors) { return productOf(factors); }

std::optional<IntExpr> divideExactly(const IntExpr& a, const IntExpr& b) { return IntExprBuilder::divide(a, b); }

bool provenLess(const IntExpr& a, const IntExpr& b) { return (b - a).lower().value_or(0) > 0; }

bool provenLessEqual(const IntExpr& a, const IntExpr& b) { return (b - a).lower().value_or(-1) >= 0; }

bool provenUnequal(const IntExpr& a, const IntExpr& b) { return provenLess(a, b) || provenLess(b, a); }

}  // namespace meshfuse
