// The serial digits along which sums accumulate.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/ranges.h"
#include "schedule/rows.h"

namespace meshfuse {
namespace {

std::vector<int64_t> sizesOf(const std::vector<tile::Builder::DigitSpec>& digits) {
  return mapped(digits, [](const tile::Builder::DigitSpec& d) { return d.size.constValue(); });
}

using Sizes = std::vector<int64_t>;

TEST(Summing, AShortSumHasOneDigit) {
  EXPECT_EQ(sizesOf(summing(1)), Sizes{0});
  EXPECT_EQ(sizesOf(summing(16)), Sizes{0});
  EXPECT_EQ(sizesOf(summing(64, 1, 64)), Sizes{0});
}

TEST(Summing, ALongSumHasFewLargeBlocksAndManySmallOnes) {
  EXPECT_EQ(sizesOf(summing(64)), (Sizes{0, 16}));
  EXPECT_EQ(sizesOf(summing(256)), (Sizes{0, 32}));
  EXPECT_EQ(sizesOf(summing(2048)), (Sizes{0, 16, 32}));
  EXPECT_EQ(sizesOf(summing(2048, 1, 64)), (Sizes{0, 4, 16}));
}

TEST(Summing, AStepOfManyTermsCountsAsMany) {
  EXPECT_EQ(sizesOf(summing(8, 1000)), (Sizes{0, 2}));
  EXPECT_EQ(sizesOf(summing(2, 1000)), Sizes{0});
}

TEST(Summing, NoSumHasManyTerms) {
  for (int64_t steps = 1; steps < 5'000'000; steps += 1 + steps / 7) {
    for (int64_t lanes : {1, 3, 16, 64, 1024}) {
      const Sizes sizes = sizesOf(summing(steps, 1, lanes));
      int64_t inner = 1;
      for (size_t i = 1; i < sizes.size(); i++) {
        EXPECT_LE(sizes[i], 64) << steps << " steps in " << lanes << " lanes";
        inner *= sizes[i];
      }
      EXPECT_LE((steps + inner - 1) / inner, 64) << steps << " steps in " << lanes << " lanes";
    }
  }
}

}  // namespace
}  // namespace meshfuse
