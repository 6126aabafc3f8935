// What the prover may and may not conclude, against values.
#include "digits/prover.h"

#include <gtest/gtest.h>

#include "digits/digit_list.h"

namespace meshfuse {
namespace {

int64_t at(const IntExpr& e, int64_t n, int64_t x) {
  return e.evaluate([&](std::string_view symbol) { return std::optional<int64_t>(symbol == "n" ? n : x); });
}

TEST(Prover, DividesOnlyWhatIsKnown) {
  const IntExpr n = IntExpr::symbol("n", {.lower = 1});
  const IntExpr x = IntExpr::symbol("x", {.lower = 1});
  Prover prover;
  EXPECT_FALSE(prover.divide(n, x).has_value());
  EXPECT_FALSE(prover.divide(n, 0).has_value());
  EXPECT_EQ(prover.divide(n * x * 6, x * 2), std::optional<IntExpr>(n * 3));
  prover.assumeDivides(x, n);
  ASSERT_TRUE(prover.divide(n, x).has_value());
  ASSERT_TRUE(prover.divide(n * 4, x).has_value());
  EXPECT_FALSE(prover.divide(n, x * x).has_value());
  EXPECT_FALSE(prover.divide(n + 1, x).has_value());
  const IntExpr q = *prover.divide(n, x);
  EXPECT_EQ(prover.multiply(x, q), n);
  EXPECT_EQ(prover.multiply(q * 3, x), n * 3);
  EXPECT_EQ(prover.divide(n, q), std::optional<IntExpr>(x));
  EXPECT_EQ(prover.facts().size(), 1u);
  prover.assumeDivides(x, n * 2);
  EXPECT_EQ(prover.facts().size(), 1u) << "what follows is no new fact";
}

TEST(Prover, ConclusionsHoldWhereTheFactsDo) {
  const IntExpr n = IntExpr::symbol("n", {.lower = 1});
  const IntExpr x = IntExpr::symbol("x", {.lower = 1});
  Prover prover;
  prover.assumeDivides(x, n);
  for (int64_t size = 1; size <= 4; size++) {
    for (int64_t parts = 1; parts <= 5; parts++) {
      const int64_t extent = size * parts;
      EXPECT_EQ(at(*prover.divide(n * 6, x), extent, parts), 6 * size);
      EXPECT_EQ(at(prover.multiply(x * 2, *prover.divide(n, x)), extent, parts), 2 * extent);
    }
  }
}

// Two axes on one dim: quotients by one of them and by both are written alike.
TEST(Prover, PartsOfADivisorDivideToo) {
  const IntExpr x = IntExpr::symbol("x", {.lower = 1});
  const IntExpr y = IntExpr::symbol("y", {.lower = 1});
  Prover prover;
  prover.assumeDivides(x * y, 24);
  const IntExpr byX = *prover.divide(24, x);
  const IntExpr byBoth = *prover.divide(byX, y);
  EXPECT_EQ(prover.divide(24, x * y), std::optional<IntExpr>(byBoth));
  EXPECT_EQ(prover.multiply(byX, x), IntExpr(24));
  EXPECT_EQ(prover.multiply(byBoth * y, x), IntExpr(24));
  EXPECT_EQ(prover.multiply(byBoth * 2, x * y), IntExpr(48));
  EXPECT_EQ(prover.divide(24, byX), std::optional<IntExpr>(x));
  EXPECT_FALSE(prover.divide(24, x * x).has_value());
  EXPECT_FALSE(prover.divide(12, x).has_value());
}

TEST(Prover, BlockShardsOfASymbolicDimAreDigits) {
  const IntExpr n = IntExpr::symbol("n", {.lower = 1});
  Prover prover;
  prover.assumeDivides(4, n);
  const DigitList block = fillLocal(0, n, {{0, *prover.divide(n, 4), 4, Owner::device(0)}}, prover);
  ASSERT_FALSE(block.isOpaque());
  EXPECT_EQ(block.localSize(prover), *prover.divide(n, 4));
  EXPECT_TRUE(fillLocal(0, n, {{0, *prover.divide(n, 4), 4, Owner::device(0)}}).isRagged())
      << "without the fact it is not known whether 4 divides n";
}

TEST(Prover, EqualNumbersAreWrittenAlike) {
  const IntExpr n = IntExpr::symbol("n");
  const IntExpr m = IntExpr::symbol("m");
  const IntExpr k = IntExpr::symbol("k");
  const IntExpr even = IntExpr::symbol("e", {.lower = 0, .divisor = 2});
  Prover prover;
  prover.assumeEqual(n, m);
  EXPECT_EQ(prover.canonical(ceilDiv(n, 4)), prover.canonical(ceilDiv(m, 4)));
  EXPECT_NE(prover.canonical(n), prover.canonical(k));
  prover.assumeEqual(k * 3, m * 6);
  EXPECT_EQ(prover.canonical(k), prover.canonical(n * 2));
  prover.assumeEqual(m, 5);
  EXPECT_EQ(prover.canonical(k + n), IntExpr(15)) << "in whatever order they are said";
  prover.assumeEqual(IntExpr::symbol("a"), even);
  EXPECT_EQ(prover.canonical(IntExpr::symbol("a")), even) << "the name with more declared facts";
  prover.assumeEqual(IntExpr::symbol("b") * IntExpr::symbol("c"), 12);
  prover.assumeEqual(ceilDiv(IntExpr::symbol("d"), 4), 3);  // 9 to 12
  EXPECT_EQ(prover.canonical(ceilDiv(IntExpr::symbol("d"), 4)), IntExpr(3));
  EXPECT_EQ(prover.canonical(ceilDiv(IntExpr::symbol("d"), 12)), IntExpr(1));
  EXPECT_FALSE(prover.canonical(IntExpr::symbol("b")).isConst()) << "a product says nothing of its factors";
  EXPECT_FALSE(prover.canonical(IntExpr::symbol("d")).isConst());
  EXPECT_TRUE(prover.facts().empty());
}

}  // namespace
}  // namespace meshfuse
