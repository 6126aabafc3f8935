// The digit algebra against brute force on index values.
#include "digits/digit_list.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace meshfuse {
namespace {

using Index = std::vector<int64_t>;

std::vector<Index> allIndices(const std::vector<int64_t>& extents) {
  std::vector<Index> all{{}};
  for (int64_t extent : extents) {
    std::vector<Index> next;
    for (const Index& prefix : all) {
      for (int64_t i = 0; i < extent; i++) {
        next.push_back(prefix);
        next.back().push_back(i);
      }
    }
    all = std::move(next);
  }
  return all;
}

// A dim made by splits and merges: its digits, and its value at every index as computed step by step.
struct Dim {
  int64_t extent;
  DigitList digits;
  std::vector<int64_t> values;
};

std::vector<Dim> randomDomain(std::mt19937& rng, const std::vector<int64_t>& extents, const std::vector<Index>& indices,
                              int steps) {
  std::vector<Dim> dims;
  for (size_t k = 0; k < extents.size(); k++) {
    Dim d{extents[k], DigitList::whole(static_cast<int>(k), extents[k]), {}};
    for (const Index& i : indices) {
      d.values.push_back(i[k]);
    }
    dims.push_back(std::move(d));
  }
  for (int step = 0; step < steps; step++) {
    if (rng() % 2 == 0 && dims.size() > 1) {
      size_t a = rng() % dims.size();
      size_t b = rng() % dims.size();
      if (a == b) {
        continue;
      }
      Dim merged{dims[a].extent * dims[b].extent, merge(dims[a].digits, dims[b].digits), {}};
      for (size_t i = 0; i < indices.size(); i++) {
        merged.values.push_back(dims[a].values[i] * dims[b].extent + dims[b].values[i]);
      }
      dims[a] = std::move(merged);
      dims.erase(dims.begin() + static_cast<ptrdiff_t>(b));
    } else {
      size_t a = rng() % dims.size();
      std::vector<int64_t> factors;
      for (int64_t f = 1; f <= dims[a].extent; f++) {
        if (dims[a].extent % f == 0) {
          factors.push_back(f);
        }
      }
      int64_t f = factors[rng() % factors.size()];
      auto [outer, inner] = split(dims[a].digits, f);
      Dim o{dims[a].extent / f, outer, {}};
      Dim i{f, inner, {}};
      for (int64_t v : dims[a].values) {
        o.values.push_back(v / f);
        i.values.push_back(v % f);
      }
      dims[a] = std::move(i);
      dims.insert(dims.begin() + static_cast<ptrdiff_t>(a), std::move(o));
    }
  }
  return dims;
}

int64_t valueOf(const DigitList& list, const Index& index) {
  int64_t value = 0;
  for (const Digit& d : list.digits()) {
    value = value * d.size.constValue() + index[d.dim] / d.stride.constValue() % d.size.constValue();
  }
  return value;
}

const std::vector<std::vector<int64_t>> kShapes = {{4, 6}, {8}, {12}, {2, 3, 4}, {24}, {6, 6}, {1, 8}, {2, 2, 2, 3}};

TEST(DigitList, BlockAndCyclicDiffer) {
  DigitList n = DigitList::whole(0, 8);
  auto block = split(n, 4).first;
  auto cyclic = split(n, 2).second;
  EXPECT_EQ(block.toString(), "[d0/4%2]");
  EXPECT_EQ(cyclic.toString(), "[d0/1%2]");
  EXPECT_FALSE(provenEqual(block, cyclic));
  EXPECT_TRUE(provenEqual(merge(block, split(n, 4).second), n));
  EXPECT_FALSE(provenEqual(DigitList::opaque(), DigitList::opaque()));
}

// Digits give the value that the chain of splits and merges gives, and equality of digits is equality of values.
TEST(DigitList, RandomChainsAgainstIndexValues) {
  std::mt19937 rng(1);
  int trulyEqual = 0;
  int proved = 0;
  int pairs = 0;
  for (int round = 0; round < 12000; round++) {
    const std::vector<int64_t>& extents = kShapes[rng() % kShapes.size()];
    std::vector<Index> indices = allIndices(extents);
    std::vector<Dim> a = randomDomain(rng, extents, indices, 1 + static_cast<int>(rng() % 4));
    std::vector<Dim> b = randomDomain(rng, extents, indices, 1 + static_cast<int>(rng() % 4));
    const Dim& x = a[rng() % a.size()];
    if (!x.digits.isOpaque()) {
      for (size_t i = 0; i < indices.size(); i++) {
        ASSERT_EQ(valueOf(x.digits, indices[i]), x.values[i]) << x.digits.toString();
      }
    }
    for (const Dim& y : b) {
      if (y.extent != x.extent || x.extent == 1) {
        continue;
      }
      pairs++;
      const bool equal = x.values == y.values;
      const bool claim = provenEqual(x.digits, y.digits);
      ASSERT_TRUE(equal || !claim) << x.digits.toString() << " " << y.digits.toString();
      trulyEqual += equal ? 1 : 0;
      proved += claim ? 1 : 0;
    }
  }
  const double completeness = static_cast<double>(proved) / trulyEqual;
  std::printf("%d pairs, %d equal, %d proved: completeness %.3f\n", pairs, trulyEqual, proved, completeness);
  EXPECT_GT(trulyEqual, 2000);
  EXPECT_GT(completeness, 0.95);
}

// A digit of a dim of the domain and its pieces on the base select the same value, and back.
TEST(DigitList, MappedDigitsKeepTheirValue) {
  std::mt19937 rng(2);
  int mapped = 0;
  int back = 0;
  int tried = 0;
  for (int round = 0; round < 8000; round++) {
    const std::vector<int64_t>& extents = kShapes[rng() % kShapes.size()];
    std::vector<Index> indices = allIndices(extents);
    std::vector<Dim> domain = randomDomain(rng, extents, indices, 1 + static_cast<int>(rng() % 4));
    std::vector<DigitList> lists;
    for (const Dim& d : domain) {
      lists.push_back(d.digits);
    }
    const int k = static_cast<int>(rng() % domain.size());
    std::vector<std::pair<int64_t, int64_t>> cuts;
    for (int64_t s = 1; s <= domain[k].extent; s++) {
      for (int64_t n = 2; s * n <= domain[k].extent; n++) {
        if (domain[k].extent % (s * n) == 0) {
          cuts.push_back({s, n});
        }
      }
    }
    if (cuts.empty()) {
      continue;
    }
    auto [stride, size] = cuts[rng() % cuts.size()];
    tried++;
    DigitList base = toBase(lists, {k, stride, size, Owner::device(0)});
    if (base.isOpaque()) {
      continue;
    }
    mapped++;
    for (size_t i = 0; i < indices.size(); i++) {
      ASSERT_EQ(valueOf(base, indices[i]), domain[k].values[i] / stride % size);
    }
    // Owners' `below` make the pieces add up to the coordinate.
    IntExpr below = 1;
    for (size_t i = base.digits().size(); i-- > 0;) {
      ASSERT_EQ(base.digits()[i].owner.below, below);
      below = below * base.digits()[i].size;
    }
    for (const Digit& piece : base.digits()) {
      DigitList again = fromBase(lists, piece);
      if (again.isOpaque()) {
        continue;
      }
      back++;
      for (size_t i = 0; i < indices.size(); i++) {
        int64_t value = 0;
        for (const Digit& d : again.digits()) {
          value = value * d.size.constValue() + domain[d.dim].values[i] / d.stride.constValue() % d.size.constValue();
        }
        ASSERT_EQ(value, indices[i][piece.dim] / piece.stride.constValue() % piece.size.constValue());
      }
    }
  }
  std::printf("%d digits, %d mapped, %d pieces mapped back\n", tried, mapped, back);
  EXPECT_GT(mapped, tried * 9 / 10);
  EXPECT_GT(back, mapped * 9 / 10);
}

TEST(DigitList, FillLocalCompletesADim) {
  std::vector<Digit> owned{{0, 1, 2, Owner::device(1)}, {0, 12, 2, Owner::device(0)}};
  EXPECT_EQ(fillLocal(0, 24, owned).toString(), "[d0/12%2:a0, d0/2%6, d0/1%2:a1]");
  EXPECT_EQ(fillLocal(0, 25, owned).toString(), "[d0/24%2<25, d0/12%2:a0, d0/2%6, d0/1%2:a1]");
  EXPECT_EQ(fillLocal(0, 23, owned).toString(), "[d0/12%2:a0<23, d0/2%6, d0/1%2:a1]");
  EXPECT_EQ(fillLocal(0, 0, {{0, 1, 2, Owner::device(0)}}).toString(), "[d0/1%2:a0<0]");
  const IntExpr n = IntExpr::symbol("n");
  EXPECT_EQ(fillLocal(0, n, owned).toString(), "[d0/24%ceilDiv(n, 24)<n, d0/12%2:a0, d0/2%6, d0/1%2:a1]")
      << "whether 24 divides n is not known";
  EXPECT_TRUE(fillLocal(0, 24, {{0, 4, 3, Owner::device(0)}, {0, 6, 2, Owner::device(1)}}).isOpaque());
  EXPECT_EQ(fillLocal(0, 24, owned).localSize(), IntExpr(6));
}

TEST(DigitList, SymbolicSizes) {
  IntExpr b = IntExpr::symbol("b");
  IntExpr h = IntExpr::symbol("h");
  DigitList bh = DigitList::whole(0, b * h);
  auto [outer, inner] = split(bh, h);
  EXPECT_EQ(outer.toString(), "[d0/h%b]");
  EXPECT_TRUE(provenEqual(merge(outer, inner), bh));
  EXPECT_TRUE(split(DigitList::whole(0, b), h).first.isOpaque()) << "h may not divide b";

  Prover prover;
  prover.assumeDivides(h, b);
  DigitList whole = DigitList::whole(0, b);
  auto [o, i] = split(whole, h, prover);
  ASSERT_FALSE(o.isOpaque());
  EXPECT_TRUE(provenEqual(merge(o, i, prover), whole, prover));
  auto [o2, i2] = split(whole, floorDiv(b, h), prover);
  ASSERT_FALSE(o2.isOpaque());
  EXPECT_EQ(o2.size(), h);
  EXPECT_FALSE(provenEqual(o, o2, prover)) << "block and cyclic differ whatever the sizes";
}

// The topmost digit is rounded up and keeps the true extent; every index below the extent is selected once.
TEST(DigitList, RaggedBlocks) {
  for (int64_t extent = 1; extent <= 12; extent++) {
    for (int64_t parts = 2; parts <= 5; parts++) {
      const int64_t c = (extent + parts - 1) / parts;
      const DigitList blocks = fillRagged(0, extent, {{0, c, parts, Owner::device(0)}});
      const DigitList cyclic = fillRagged(0, extent, {{0, 1, parts, Owner::device(0)}});
      EXPECT_EQ(blocks.isRagged(), extent % parts != 0) << blocks.toString();
      for (const DigitList& list : {blocks, cyclic}) {
        EXPECT_EQ(list.extent(), IntExpr(extent)) << list.toString();
        EXPECT_TRUE(provenEqual(list, list));
      }
      if (extent % parts == 0) {
        EXPECT_TRUE(provenEqual(blocks, fillLocal(0, extent, {{0, c, parts, Owner::device(0)}})));
      }
    }
  }
  const DigitList five = fillRagged(0, 5, {{0, 2, 4, Owner::device(0)}});
  EXPECT_EQ(five.toString(), "[d0/2%4:a0<5, d0/1%2]");
  EXPECT_EQ(five.size(), IntExpr(8)) << "the padded radix";
  EXPECT_FALSE(provenEqual(five, fillRagged(0, 6, {{0, 2, 4, Owner::device(0)}}))) << "the extent is part of equality";
  EXPECT_FALSE(provenEqual(five, fillLocal(0, 8, {{0, 2, 4, Owner::device(0)}})));
}

// Rounded up as those of constants are, and for every extent the same elements.
TEST(DigitList, RaggedDigitsOfASymbol) {
  const IntExpr n = IntExpr::symbol("n");
  const IntExpr x = IntExpr::symbol("x", {.lower = 1});
  for (const IntExpr& parts : {IntExpr(4), x}) {
    const auto [outer, inner] = splitRagged({0, 1, n, {}}, n, parts, ceilDiv(n, parts));
    const DigitList blocks = fillLocal(0, n, {outer.ownedBy(Owner::device(0)).digits()[0]});
    const DigitList cycles = fillLocal(0, n, {{0, 1, parts, Owner::device(0)}});
    EXPECT_EQ(blocks.digits().size(), 2u) << blocks.toString();
    EXPECT_EQ(blocks.extent(), n);
    EXPECT_EQ(blocks.localSize(), ceilDiv(n, parts));
    EXPECT_TRUE(provenEqual(blocks, blocks));
    EXPECT_FALSE(provenEqual(blocks, cycles));
    EXPECT_FALSE(provenEqual(blocks, fillLocal(0, n + 1, {blocks.digits()[0]})));
    for (int64_t extent = 1; extent <= 12; extent++) {
      for (int64_t count = 1; count <= 5; count++) {
        const auto at = [&](const IntExpr& e) {
          return e.evaluate([&](std::string_view symbol) { return std::optional(symbol == "n" ? extent : count); });
        };
        const int64_t ranks = at(parts);
        for (int64_t i = 0; i < extent; i++) {
          const Digit& b = blocks.digits()[0];
          EXPECT_EQ(i / at(b.stride) % at(b.size), i / ((extent + ranks - 1) / ranks));
          const Digit& c = cycles.digits()[1];
          EXPECT_EQ(i / at(c.stride) % at(c.size), i % ranks);
          EXPECT_LT(i / at(cycles.digits()[0].stride), at(cycles.digits()[0].size));
        }
      }
    }
  }
}

TEST(DigitList, WhatIsRaggedStaysOnTop) {
  const DigitList five = fillRagged(0, 5, {{0, 2, 4, Owner::device(0)}});
  EXPECT_TRUE(merge(DigitList::whole(1, 3), five).isOpaque()) << "a ragged inner side";
  const DigitList under = merge(five, DigitList::whole(1, 3));
  EXPECT_EQ(under.toString(), "[d0/2%4:a0<5, d0/1%2, d1/1%3]");
  const auto [outer, inner] = split(five, 4);
  EXPECT_EQ(outer.toString(), "[d0/4%2:a0/2<5]");
  EXPECT_EQ(inner.toString(), "[d0/2%2:a0, d0/1%2]");
  EXPECT_EQ(merge(outer, inner).toString(), five.toString());
}

TEST(DigitList, IsARangeWithOwnedDigitsOutermost) {
  const Owner x = Owner::device(0);
  EXPECT_TRUE(DigitList().isRange());
  EXPECT_TRUE(DigitList::whole(0, 24).isRange());
  EXPECT_TRUE(fillLocal(0, 24, {{0, 6, 4, x}}).isRange());
  EXPECT_TRUE(fillRagged(0, 5, {{0, 2, 4, x}}).isRange());
  EXPECT_FALSE(fillLocal(0, 24, {{0, 1, 4, x}}).isRange());
  EXPECT_FALSE(fillLocal(0, 24, {{0, 12, 2, x}, {0, 1, 2, Owner::device(1)}}).isRange());
}

}  // namespace
}  // namespace meshfuse
