// Integer expressions against direct evaluation of the operations they were built from.
#include "digits/int_expr.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"

namespace meshfuse {
namespace {

const std::map<std::string, SymbolFacts, std::less<>> kSymbols = {
    {"i", {.lower = 0, .upper = 7}},   {"j", {.lower = 0, .upper = 31}},
    {"c", {.lower = -5, .upper = 5}},  {"n", {.lower = 1, .divisor = 1}},
    {"N", {.lower = 0, .divisor = 8}}, {"M", {.lower = 64, .upper = 640, .divisor = 64}},
    {"p", {.lower = 2, .upper = 2}},
};
IntExpr sym(const std::string& name) { return IntExpr::symbol(name, kSymbols.at(name)); }
SymbolFacts factsOf(std::string_view name) { return kSymbols.find(name)->second; }

using Values = std::map<std::string, int64_t, std::less<>>;
std::function<std::optional<int64_t>(std::string_view)> in(const Values& values) {
  return [&values](std::string_view name) { return std::optional<int64_t>(values.find(name)->second); };
}

Values randomValues(std::mt19937_64& rng) {
  Values values;
  for (const auto& [name, facts] : kSymbols) {
    int64_t upper = std::min<int64_t>(facts.upper, 1000);
    int64_t v = std::uniform_int_distribution<int64_t>(facts.lower, upper)(rng);
    // The nearest multiple within the bounds.
    v = facts.divisor == 1 ? v : std::max(facts.lower, v / facts.divisor * facts.divisor);
    values[name] = v;
  }
  return values;
}

int64_t floorOf(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// An expression beside the plain function it stands for.
struct Pair {
  IntExpr expr;
  std::function<int64_t(const Values&)> value;
};

Pair randomPair(std::mt19937_64& rng, int depth) {
  auto below = [&](uint64_t n) { return static_cast<int64_t>(rng() % n); };
  if (depth == 0 || below(6) == 0) {
    if (below(4) == 0) {
      int64_t k = below(41) - 20;
      return {k, [k](const Values&) { return k; }};
    }
    auto it = std::next(kSymbols.begin(), below(kSymbols.size()));
    std::string name = it->first;
    return {sym(name), [name](const Values& v) { return v.at(name); }};
  }
  Pair a = randomPair(rng, depth - 1);
  switch (below(9)) {
    case 0:
    case 1:
    case 2: {
      Pair b = randomPair(rng, depth - 1);
      return {a.expr + b.expr, [a, b](const Values& v) { return a.value(v) + b.value(v); }};
    }
    case 3: {
      Pair b = randomPair(rng, depth - 1);
      return {a.expr - b.expr, [a, b](const Values& v) { return a.value(v) - b.value(v); }};
    }
    case 4: {
      Pair b = randomPair(rng, depth > 1 ? 1 : 0);
      return {a.expr * b.expr, [a, b](const Values& v) { return a.value(v) * b.value(v); }};
    }
    case 5: {
      Pair b = randomPair(rng, depth - 1);
      return below(2) == 0
                 ? Pair{min(a.expr, b.expr), [a, b](const Values& v) { return std::min(a.value(v), b.value(v)); }}
                 : Pair{max(a.expr, b.expr), [a, b](const Values& v) { return std::max(a.value(v), b.value(v)); }};
    }
    default:
      break;
  }
  constexpr int64_t divisors[] = {1, 2, 3, 4, 8, 16, 32, 64, 6};
  Pair b{divisors[below(9)], {}};
  b.value = [k = b.expr.constValue()](const Values&) { return k; };
  if (below(4) == 0) {
    std::string name = below(2) == 0 ? "n" : "M";
    b = {sym(name), [name](const Values& v) { return v.at(name); }};
  }
  switch (below(3)) {
    case 0:
      return {floorDiv(a.expr, b.expr), [a, b](const Values& v) { return floorOf(a.value(v), b.value(v)); }};
    case 1:
      return {ceilDiv(a.expr, b.expr), [a, b](const Values& v) { return -floorOf(-a.value(v), b.value(v)); }};
    default:
      return {mod(a.expr, b.expr),
              [a, b](const Values& v) { return a.value(v) - floorOf(a.value(v), b.value(v)) * b.value(v); }};
  }
}

class RandomExpressions : public testing::Test {
 protected:
  // body(pair, rng) for many random expressions; those whose coefficients overflow are left out.
  void forMany(const std::function<void(const Pair&, std::mt19937_64&)>& body, int count = 4000) {
    int made = 0;
    for (uint64_t seed = 1; made < count; seed++) {
      std::mt19937_64 rng(seed);
      SCOPED_TRACE(seed);
      Pair pair;
      try {
        pair = randomPair(rng, 1 + static_cast<int>(seed % 4));
      } catch (const InternalError& e) {
        ASSERT_NE(std::string(e.what()).find("overflows"), std::string::npos) << e.what();
        continue;
      }
      made++;
      body(pair, rng);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
};

TEST_F(RandomExpressions, ValueBoundsAndDivisorHold) {
  forMany([](const Pair& p, std::mt19937_64& rng) {
    std::optional<int64_t> lower = p.expr.lower(), upper = p.expr.upper();
    int64_t divisor = p.expr.divisor();
    for (int trial = 0; trial < 20; trial++) {
      Values values = randomValues(rng);
      int64_t expected = p.value(values);
      ASSERT_EQ(p.expr.evaluate(in(values)), expected) << p.expr.toString();
      ASSERT_TRUE(!lower || *lower <= expected) << p.expr.toString() << " = " << expected << " >= " << *lower;
      ASSERT_TRUE(!upper || *upper >= expected) << p.expr.toString() << " = " << expected << " <= " << *upper;
      ASSERT_TRUE(divisor == 0 ? expected == 0 : expected % divisor == 0)
          << p.expr.toString() << " = " << expected << " % " << divisor;
    }
  });
}

TEST_F(RandomExpressions, PrintedAndParsedAgain) {
  forMany([](const Pair& p, std::mt19937_64&) {
    std::string text = p.expr.toString();
    IntExpr parsed = parseIntExpr(text, factsOf);
    ASSERT_EQ(parsed, p.expr) << text << " became " << parsed.toString();
    ASSERT_EQ(parsed.toString(), text);
  });
}

TEST_F(RandomExpressions, SubstitutionAgreesWithEvaluation) {
  forMany([](const Pair& p, std::mt19937_64& rng) {
    Values values = randomValues(rng);
    IntExpr all =
        p.expr.substitute([&](std::string_view name) { return std::optional<IntExpr>(values.find(name)->second); });
    ASSERT_TRUE(all.isConst(p.value(values))) << p.expr.toString() << " became " << all.toString();
    IntExpr some = p.expr.substitute([&](std::string_view name) {
      return name < "c" || name == "n" ? std::optional<IntExpr>(values.find(name)->second) : std::nullopt;
    });
    ASSERT_EQ(some.evaluate(in(values)), p.value(values)) << p.expr.toString() << " became " << some.toString();
    ASSERT_FALSE(some.contains("n"));
    // The same symbols again give the same expression.
    ASSERT_EQ(p.expr.substitute([](std::string_view) { return std::nullopt; }), p.expr) << p.expr.toString();
  });
}

TEST_F(RandomExpressions, LinearFormsRecompose) {
  forMany([](const Pair& p, std::mt19937_64&) {
    for (const auto& [name, facts] : kSymbols) {
      if (std::optional<LinearForm> form = p.expr.linearIn(name)) {
        ASSERT_FALSE(form->slope.contains(name) || form->rest.contains(name)) << p.expr.toString();
        ASSERT_EQ(form->slope * sym(name) + form->rest, p.expr) << p.expr.toString() << " in " << name;
      }
    }
  });
}

TEST_F(RandomExpressions, AlgebraKeepsTheNormalForm) {
  forMany(
      [](const Pair& p, std::mt19937_64& rng) {
        Pair q = randomPair(rng, 2);
        ASSERT_EQ(p.expr + q.expr, q.expr + p.expr);
        ASSERT_EQ(p.expr * q.expr, q.expr * p.expr);
        ASSERT_TRUE((p.expr - p.expr).isConst(0));
        ASSERT_EQ(p.expr * 3, p.expr + p.expr + p.expr);
        for (int64_t k : {2, 4, 32}) {
          ASSERT_EQ(floorDiv(p.expr, k) * k + mod(p.expr, k), p.expr) << p.expr.toString() << " by " << k;
          ASSERT_EQ(floorDiv(p.expr * k, k), p.expr);
          ASSERT_TRUE(mod(p.expr * k, k).isConst(0));
          if (p.expr.divisibleBy(k)) {
            ASSERT_TRUE(mod(p.expr, k).isConst(0)) << p.expr.toString() << " by " << k;
          }
        }
      },
      1500);
}

TEST_F(RandomExpressions, ProvenComparisonsHold) {
  int proven = 0;
  forMany([&](const Pair& p, std::mt19937_64& rng) {
    Pair q = randomPair(rng, 2);
    bool less = provenLess(p.expr, q.expr);
    bool lessEqual = provenLessEqual(p.expr, q.expr);
    ASSERT_TRUE(!less || lessEqual);
    proven += less ? 1 : 0;
    for (int trial = 0; trial < 10; trial++) {
      Values values = randomValues(rng);
      ASSERT_TRUE(!less || p.value(values) < q.value(values)) << p.expr.toString() << " < " << q.expr.toString();
      ASSERT_TRUE(!lessEqual || p.value(values) <= q.value(values)) << p.expr.toString() << " <= " << q.expr.toString();
    }
  });
  EXPECT_GT(proven, 100);
}

TEST(IntExpr, SimplifiesDivisions) {
  IntExpr n = sym("n"), i = sym("i"), j = sym("j"), big = sym("N");
  EXPECT_EQ(floorDiv(n * 4, 4), n);
  EXPECT_EQ(mod(n * 4 + 3, 4), IntExpr(3));
  EXPECT_EQ(floorDiv(n * 32 + j, 32), n);
  EXPECT_EQ(mod(n * 32 + j, 32), j);
  EXPECT_EQ(floorDiv(n * 32 + j + 32, 32), n + 1);
  EXPECT_EQ(floorDiv(floorDiv(n, 4), 8), floorDiv(n, 32));
  EXPECT_EQ(floorDiv(n * 6, 4), floorDiv(n * 3, 2));
  EXPECT_EQ(ceilDiv(n * 32, 32), n);
  EXPECT_EQ(ceilDiv(n + 64, 32), ceilDiv(n, 32) + 2);
  EXPECT_EQ(ceilDiv(n * 3 + 2, n * 3 + 3), IntExpr(1));
  EXPECT_EQ(ceilDiv(big * 3, big * 3 + 3).toString(), "ceilDiv(N*3, N*3 + 3)");  // 0 where N is 0
  EXPECT_EQ(ceilDiv(n * 3 + 4, n * 3 + 3).toString(), "ceilDiv(n*3 + 4, n*3 + 3)");
  EXPECT_EQ(floorDiv(n * i, n), i);
  EXPECT_EQ(mod(i, 8), i);
  EXPECT_EQ(floorDiv(i, sym("M")), IntExpr(0));
  EXPECT_EQ(mod(i, sym("M")), i);
  EXPECT_EQ(min(i, 7), i);
  EXPECT_EQ(max(n, 1), n);
  EXPECT_EQ(floorDiv(n, 8) * 8 + mod(n, 8), n);
  EXPECT_EQ((floorDiv(n, 8) * 8 + mod(n, 8)) * j, n * j);
  const IntExpr m = IntExpr::symbol("m", {.lower = 2});
  EXPECT_EQ(floorDiv(n, m) * m + mod(n, m), n);
  const IntExpr several = m * IntExpr::symbol("k", {.lower = 1}) * 3;
  EXPECT_EQ(floorDiv(n, several) * several + mod(n, several), n);
  EXPECT_EQ((floorDiv(n, m) * m + mod(n, m)) * j + 5, n * j + 5);
  EXPECT_NE(floorDiv(n, m) * j + mod(n, m), n);
  EXPECT_NE(floorDiv(n, m + 1) * m + mod(n, m + 1), n);
}

TEST(IntExpr, UsesDivisorFacts) {
  IntExpr n = sym("n"), i = sym("i"), big = sym("N"), rows = sym("M");
  EXPECT_TRUE(mod(big, 8).isConst(0));
  EXPECT_TRUE(mod(big * n, 8).isConst(0));
  EXPECT_EQ(mod(big + n, 8), mod(n, 8));
  EXPECT_EQ(mod(big + i, 8), i);
  EXPECT_EQ(floorDiv(big + i, 8), floorDiv(big, 8));
  EXPECT_EQ(floorDiv(big, 8) * 8, big);
  EXPECT_EQ(ceilDiv(big, 8), floorDiv(big, 8));
  EXPECT_TRUE(floorDiv(rows, 16).divisibleBy(4));
  EXPECT_FALSE(floorDiv(rows, 16).divisibleBy(8));
  EXPECT_EQ(floorDiv(rows, 16) * 16, rows);
}

TEST(IntExpr, Divides) {
  IntExpr n = sym("n"), i = sym("i");
  EXPECT_EQ(divideExactly(n * i * 6, n * 3), std::optional(i * 2));
  EXPECT_EQ(divideExactly(n * 6 + 3, 3), std::optional(n * 2 + 1));
  EXPECT_EQ(divideExactly(n + i, n + i), std::optional<IntExpr>(1));
  EXPECT_EQ(divideExactly(n * 4 - i * 2 - 6, n * 2 - i - 3), std::optional<IntExpr>(2));
  EXPECT_EQ(divideExactly(n * 4 - i * 2 - 5, n * 2 - i - 3), std::nullopt);
  EXPECT_EQ(divideExactly(n * 4 - i - 6, n * 2 - i - 3), std::nullopt);
  EXPECT_EQ(divideExactly(n * 3 + i, n * 2 + i), std::nullopt);
  EXPECT_EQ(divideExactly(0, n + i), std::nullopt);
  EXPECT_EQ(divideExactly(n * 6 + 2, 3), std::nullopt);
  EXPECT_EQ(divideExactly(n * 6 + 3, n), std::nullopt);
  EXPECT_EQ(divideExactly(n, 0), std::nullopt);
}

// Simplifying what is in normal form already, again at every use, would take time exponential in the depth.
TEST(IntExpr, CancelsWhatBothSidesOfAQuotientHave) {
  const IntExpr n = IntExpr::symbol("n");
  const IntExpr b = IntExpr::symbol("b");
  const IntExpr h = IntExpr::symbol("h", {.lower = 0, .divisor = 12});
  EXPECT_EQ(floorDiv(b * n, b * 12), floorDiv(n, 12));
  EXPECT_EQ(ceilDiv(b * n + b, b * 12), ceilDiv(n + 1, 12));
  EXPECT_EQ(floorDiv(b * n + 1, b * 12).toString(), "floorDiv(b*n + 1, b*12)");
  EXPECT_EQ(divideExactly(floorDiv(h, 4), floorDiv(h, 12)), std::optional<IntExpr>(3));
  EXPECT_EQ(divideExactly(h * n, floorDiv(h, 4) * 2), std::optional<IntExpr>(n * 2));
  EXPECT_FALSE(divideExactly(floorDiv(h, 12), floorDiv(h, 4)).has_value());
  EXPECT_FALSE(divideExactly(floorDiv(n, 4), floorDiv(n, 12)).has_value());
}

TEST(IntExpr, SimplifiesEachPartOfADeepExpressionOnce) {
  IntExpr deep = sym("n");
  IntExpr shared = sym("n");
  for (int k = 0; k < 200; k++) {
    deep = floorDiv(deep * 7 + 1, 3);
  }
  EXPECT_EQ(deep.size(), 201);
  for (int k = 0; k < 12; k++) {
    shared = mod(shared * 3 + 1, 1000 - k) * 5 + floorDiv(shared * 3 + 1, 1000 - k);
  }
  EXPECT_EQ(shared.size(), 3 * (1 << 12) - 2);
}

TEST(IntExpr, PrintsAndRefuses) {
  EXPECT_EQ((sym("n") * -3 + 1).toString(), "-n*3 + 1");
  EXPECT_EQ((sym("i") - sym("n") * 2 - 5).toString(), "i - n*2 - 5");
  EXPECT_EQ(parseIntExpr("-3 + -2*n", factsOf), sym("n") * -2 - 3);
  auto fails = [](std::string_view text, std::string_view phrase) {
    try {
      (void)parseIntExpr(text, factsOf);
      ADD_FAILURE() << text << " was read";
    } catch (const UserError& e) {
      EXPECT_NE(std::string_view(e.what()).find(phrase), std::string_view::npos) << e.what();
    }
  };
  fails("", "offset 0");
  fails("n +", "offset 3");
  fails("n n", "unexpected 'n' at offset 2");
  fails("min(n)", "expected ','");
  fails("gcd(n, 2)", "unknown function 'gcd'");
  fails("99999999999999999999", "does not fit in 64 bits");
  fails("floorDiv(n, 0)", "offset 0");
  for (const char* opening : {"(", "-", "- (", "min(1, "}) {
    std::string deep;
    for (int k = 0; k < 20000; k++) {
      deep += opening;
    }
    fails(deep + "n", "nest more than 256 levels deep at offset");
  }
  EXPECT_EQ(parseIntExpr(std::string(200, '(') + "n" + std::string(200, ')')), sym("n"));
  EXPECT_THROW((void)(sym("n") * INT64_MAX * 2), UserError);
  EXPECT_THROW((void)sym("n").constValue(), InternalError);
  EXPECT_THROW((void)sym("n").evaluate([](std::string_view) { return std::nullopt; }), InternalError);
}

// Sizes of a program that do not fit in 64 bits, and divisors that its numbers lead to, are the user's.
TEST(IntExpr, ResultsThatDoNotFitAreUserErrors) {
  const IntExpr most = INT64_MAX;
  const IntExpr least = INT64_MIN;
  const IntExpr i = sym("i");
  const IntExpr k = IntExpr::symbol("k");
  const auto with = [](int64_t value) { return [=](std::string_view) { return std::optional<int64_t>(value); }; };
  EXPECT_THROW((void)(most + 1), UserError);
  EXPECT_THROW((void)(most * 2), UserError);
  EXPECT_THROW((void)(i * most * 2), UserError);
  EXPECT_THROW((void)(i * most + i), UserError);
  EXPECT_THROW((void)(k * most).evaluate(with(2)), UserError);
  EXPECT_THROW((void)(k + most).evaluate(with(1)), UserError);
  EXPECT_THROW((void)(k * most).substitute([](std::string_view) { return std::optional<IntExpr>(2); }), UserError);
  for (const int64_t divisor : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    EXPECT_THROW((void)floorDiv(sym("N"), k).evaluate(with(divisor)), UserError) << divisor;
    EXPECT_THROW((void)ceilDiv(7, k).evaluate(with(divisor)), UserError) << divisor;
    EXPECT_THROW((void)mod(k + 7, k).evaluate(with(divisor)), UserError) << divisor;
    EXPECT_THROW((void)floorDiv(sym("c"), k).substitute([&](std::string_view name) {
      return name == "k" ? std::optional<IntExpr>(divisor) : std::nullopt;
    }),
                 UserError)
        << divisor;
  }
  EXPECT_EQ(ceilDiv(least, 3).constValue(), INT64_MIN / 3);
  EXPECT_EQ(floorDiv(least, 3).constValue(), INT64_MIN / 3 - 1);
  EXPECT_EQ(mod(least, 3).constValue(), 1);
  EXPECT_EQ((i * least + least).toString(), "-i*9223372036854775808 - 9223372036854775808");
  EXPECT_TRUE((i * least + least).divisibleBy(2));
  EXPECT_EQ(divideExactly(i * least, i * -1), std::nullopt);
  EXPECT_EQ(divideExactly(least, -1), std::nullopt);
}

}  // namespace
}  // namespace meshfuse
