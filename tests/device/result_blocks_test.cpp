// The blocks into which matrix products are cut.
#include "device/result_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace meshfuse {
namespace {

TEST(ResultBlocks, CoverEachElementOnce) {
  std::mt19937 rng(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint32_t>(n)); };
  for (int round = 0; round < 300; round++) {
    MatrixProduct p{.operands = round % 5 == 0 ? DataType::BFloat16 : DataType::Float,
                    .m = below(round % 3 == 0 ? 40 : 1500),
                    .n = below(round % 2 == 0 ? 30 : 1200),
                    .k = below(2000)};
    p.batch = {1 + below(3)};
    const ResultBlocks blocks(p);
    std::vector<int64_t> covered(p.m * p.n * p.products(), 0);
    for (int64_t i = 0; i < blocks.count(); i++) {
      const ResultBlock b = blocks.at(i);
      for (int64_t row = b.row; row < b.row + b.rows; row++) {
        for (int64_t column = b.column; column < b.column + b.columns; column++) {
          covered.at((b.product * p.m + row) * p.n + column)++;
        }
      }
    }
    EXPECT_TRUE(std::ranges::all_of(covered, [](int64_t n) { return n == 1; })) << p.m << " " << p.n << " " << p.k;
  }
}

// Enough blocks for many threads, none so small that its call costs more than its work.
TEST(ResultBlocks, FollowFromTheShapes) {
  const auto countOf = [](int64_t m, int64_t n, int64_t k, int64_t products = 1) {
    return ResultBlocks({.m = m, .n = n, .k = k, .batch = {products}}).count();
  };
  EXPECT_EQ(countOf(8, 4096, 4096), 64);
  EXPECT_EQ(countOf(1024, 1024, 1024), 16);
  EXPECT_EQ(countOf(64, 64, 64), 1);
  EXPECT_EQ(countOf(128, 128, 32, 96), 96);
  EXPECT_EQ(countOf(1024, 1024, 64, 64), 64 * 16) << "results take longer to store than to compute: few long rows";
  EXPECT_EQ(countOf(0, 8, 8), 0);
}

// The blocks of BFloat16 are whole rows if there are many, or if k is short.
TEST(ResultBlocks, OfBFloat16) {
  using Extents = std::pair<int64_t, int64_t>;
  MatrixProduct p{.operands = DataType::BFloat16};
  const auto first = [&](int64_t m, int64_t n, int64_t k, int64_t products = 1) {
    p.m = m;
    p.n = n;
    p.k = k;
    p.batch = {products};
    const ResultBlock b = ResultBlocks(p).at(0);
    return Extents{b.rows, b.columns};
  };
  EXPECT_EQ(first(1024, 1024, 64, 64), (Extents{512, 1024}));
  EXPECT_EQ(first(4096, 1024, 1024), (Extents{256, 1024}));
  EXPECT_EQ(first(1024, 1024, 1024), (Extents{256, 1024}));
  EXPECT_EQ(first(256, 256, 256), (Extents{128, 256}));
  EXPECT_EQ(first(64, 4096, 64), (Extents{64, 4096}));
  EXPECT_EQ(first(256, 4096, 64, 16), (Extents{256, 4096}));
  EXPECT_EQ(first(8, 4096, 4096), (Extents{8, 256}));
  p.a.transposed = true;
  EXPECT_EQ(first(1024, 1024, 1024), (Extents{256, 256}));
}

// Few whole rows would leave threads without work.
TEST(ResultBlocks, OfFewLongRowsOfBFloat16) {
  const auto countOf = [](int64_t m, int64_t n, int64_t k, int64_t products = 1) {
    MatrixProduct p{.operands = DataType::BFloat16, .m = m, .n = n, .k = k};
    p.batch = {products};
    return ResultBlocks(p).count();
  };
  EXPECT_EQ(countOf(128, 50257, 768), 99);
  EXPECT_EQ(countOf(8, 50257, 768), 99);
  EXPECT_EQ(countOf(256, 2304, 768), 18);
  EXPECT_EQ(countOf(128, 50257, 768, 16), 16);
}

}  // namespace
}  // namespace meshfuse
