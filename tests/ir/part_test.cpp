// Runs of indices, against lists of them.
#include "ir/part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <vector>

namespace meshfuse {
namespace {

std::vector<int64_t> listOf(const IndexRuns& runs) {
  std::vector<int64_t> all;
  for (const IndexRun& r : runs) {
    for (int64_t i = 0; i < r.count; i++) {
      all.push_back(r.start + i * r.step);
    }
  }
  return all;
}

IndexRuns randomRuns(std::mt19937& rng, int64_t mostStep) {
  IndexRuns runs;
  int64_t at = 0;
  for (int64_t n = static_cast<int64_t>(rng() % 5); n > 0; n--) {
    const int64_t count = 1 + static_cast<int64_t>(rng() % 6);
    const int64_t step = count == 1 ? 1 : 1 + static_cast<int64_t>(rng()) % mostStep;
    runs.push_back({at + static_cast<int64_t>(rng() % 4), count, step});
    at = runs.back().last() + 1;
  }
  return runs;
}

TEST(IndexRuns, HaveTheIndicesThatBothHave) {
  std::mt19937 rng(7);
  int shared = 0;
  for (int round = 0; round < 3000; round++) {
    const int64_t mostStep = 1 + round % 2;
    const IndexRuns a = randomRuns(rng, mostStep);
    const IndexRuns b = randomRuns(rng, mostStep);
    const std::vector<int64_t> x = listOf(a);
    const std::vector<int64_t> y = listOf(b);
    std::vector<int64_t> expected;
    std::ranges::set_intersection(x, y, std::back_inserter(expected));
    ASSERT_EQ(listOf(intersection(a, b)), expected);
    shared += expected.empty() ? 0 : 1;
  }
  EXPECT_GT(shared, 1000);
}

// Two thousand ranges of a block-cyclic dim, which has too many indices for a list.
TEST(IndexRuns, OfRangesAreNotListed) {
  constexpr int64_t kBlock = 65536;
  IndexRuns cyclic;
  for (int64_t i = 0; i < 2048; i++) {
    cyclic.push_back({2 * i * kBlock, kBlock, 1});
  }
  const IndexRuns firstHalf{{0, 2048 * kBlock, 1}};
  const IndexRuns shared = intersection(cyclic, firstHalf);
  EXPECT_EQ(shared.size(), 1024u);
  EXPECT_EQ(countOf(shared), 1024 * kBlock);
}

}  // namespace
}  // namespace meshfuse
