// The planner of the arena, on random blocks and on the patterns programs make.
#include "host/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>

#include "base/error.h"

namespace meshfuse {

namespace {

int64_t rounded(int64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

bool livesMeet(const MemoryBlock& a, const MemoryBlock& b) {
  return a.firstStep <= b.lastStep && b.firstStep <= a.lastStep;
}

// The most bytes alive in one step: no plan is smaller.
int64_t lowerBound(const std::vector<MemoryBlock>& blocks) {
  int64_t most = 0;
  for (const MemoryBlock& at : blocks) {
    int64_t alive = 0;
    for (const MemoryBlock& b : blocks) {
      alive += b.firstStep <= at.firstStep && at.firstStep <= b.lastStep ? rounded(b.bytes) : 0;
    }
    most = std::max(most, alive);
  }
  return most;
}

void expectValid(const std::vector<MemoryBlock>& blocks, int64_t size) {
  for (size_t i = 0; i < blocks.size(); i++) {
    EXPECT_GE(blocks[i].offset, 0);
    EXPECT_EQ(blocks[i].offset % kArenaAlignment, 0);
    EXPECT_LE(blocks[i].offset + blocks[i].bytes, size);
    for (size_t j = 0; j < i; j++) {
      bool apart = blocks[i].offset + blocks[i].bytes <= blocks[j].offset ||
                   blocks[j].offset + blocks[j].bytes <= blocks[i].offset;
      EXPECT_TRUE(apart || !livesMeet(blocks[i], blocks[j]) || blocks[i].bytes == 0 || blocks[j].bytes == 0)
          << i << " and " << j;
    }
  }
}

std::vector<MemoryBlock> randomBlocks(std::mt19937_64& random, int64_t count, int64_t steps, int64_t most) {
  std::vector<MemoryBlock> blocks(count);
  for (MemoryBlock& b : blocks) {
    b.firstStep = static_cast<int64_t>(random() % static_cast<uint64_t>(steps));
    b.lastStep = std::min(steps - 1, b.firstStep + static_cast<int64_t>(random() % 5));
    b.bytes = static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  }
  return blocks;
}

TEST(MemoryPlan, RandomBlocksNeverOverlapAndStayNearTheBound) {
  std::mt19937_64 random(1);
  double total = 0;
  constexpr int64_t kPrograms = 300;
  for (int64_t program = 0; program < kPrograms; program++) {
    std::vector<MemoryBlock> blocks =
        randomBlocks(random, 1 + static_cast<int64_t>(random() % 40), 1 + static_cast<int64_t>(random() % 30), 100000);
    int64_t size = planMemory(blocks);
    expectValid(blocks, size);
    double ratio = static_cast<double>(size) / static_cast<double>(std::max<int64_t>(1, lowerBound(blocks)));
    EXPECT_LE(ratio, 1.5) << "program " << program;
    total += ratio;
    std::vector<MemoryBlock> again = blocks;
    EXPECT_EQ(planMemory(again), size);
    for (size_t i = 0; i < blocks.size(); i++) {
      EXPECT_EQ(again[i].offset, blocks[i].offset);
    }
  }
  EXPECT_LE(total / kPrograms, 1.1);
}

// The smallest arena there is, by trying every order of placing blocks at their lowest free offset.
int64_t optimum(const std::vector<MemoryBlock>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  int64_t best = INT64_MAX;
  do {
    std::vector<MemoryBlock> placed;
    int64_t size = 0;
    for (size_t i : order) {
      MemoryBlock b = blocks[i];
      b.offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (const MemoryBlock& other : placed) {
          if (livesMeet(b, other) && b.offset < other.offset + rounded(other.bytes) &&
              other.offset < b.offset + rounded(b.bytes)) {
            b.offset = other.offset + rounded(other.bytes);
            moved = true;
          }
        }
      }
      size = std::max(size, b.offset + rounded(b.bytes));
      placed.push_back(b);
    }
    best = std::min(best, size);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(MemoryPlan, SmallProgramsAgainstTheOptimum) {
  std::mt19937_64 random(2);
  for (int64_t program = 0; program < 100; program++) {
    std::vector<MemoryBlock> blocks = randomBlocks(random, 1 + static_cast<int64_t>(random() % 6), 6, 2000);
    int64_t best = optimum(blocks);
    EXPECT_LE(planMemory(blocks), best + best / 2) << "program " << program;
  }
}

// With the largest block first, both take 8 units.
TEST(MemoryPlan, OtherOrdersTakeLess) {
  constexpr int64_t kUnit = kArenaAlignment;
  const auto expectUnits = [](std::vector<MemoryBlock> blocks, int64_t units) {
    EXPECT_EQ(planMemory(blocks), units * kUnit);
    expectValid(blocks, units * kUnit);
  };
  expectUnits({{3 * kUnit, 4, 4}, {2 * kUnit, 0, 1}, {3 * kUnit, 1, 4}, {2 * kUnit, 0, 1}}, 7);
  expectUnits({{2 * kUnit, 0, 1}, {3 * kUnit, 2, 2}, {4 * kUnit, 0, 0}, {3 * kUnit, 1, 2}}, 6);
}

TEST(MemoryPlan, ChainTakesTheMemoryOfTwo) {
  std::vector<MemoryBlock> blocks;
  for (int64_t i = 0; i < 50; i++) {
    blocks.push_back({4096, i, i + 1, -1});
  }
  EXPECT_EQ(planMemory(blocks), 2 * 4096);
  expectValid(blocks, 2 * 4096);
}

TEST(MemoryPlan, NothingAndEmptyBlocks) {
  std::vector<MemoryBlock> none;
  EXPECT_EQ(planMemory(none), 0);
  std::vector<MemoryBlock> empty = {{0, 0, 3, -1}, {1, 1, 2, -1}, {0, 1, 1, -1}};
  EXPECT_EQ(planMemory(empty), kArenaAlignment);
  expectValid(empty, kArenaAlignment);
}

TEST(MemoryPlan, TouchingLivesMeet) {
  std::vector<MemoryBlock> blocks = {{64, 0, 1, -1}, {64, 1, 2, -1}, {64, 2, 3, -1}};
  EXPECT_EQ(planMemory(blocks), 128);
  EXPECT_NE(blocks[0].offset, blocks[1].offset);
}

TEST(MemoryPlan, ManyBlocksArePlannedFast) {
  std::mt19937_64 random(3);
  std::vector<MemoryBlock> blocks = randomBlocks(random, 5000, 5000, 100000);
  int64_t size = planMemory(blocks);
  EXPECT_GE(size, lowerBound(blocks));
}

TEST(MemoryPlan, ASumOfBytesThatDoesNotFitIsAUserError) {
  for (const size_t count : {2, 3}) {
    std::vector<MemoryBlock> together(count, MemoryBlock{.bytes = int64_t{1} << 62, .firstStep = 0, .lastStep = 1});
    EXPECT_THROW((void)planMemory(together), UserError);
  }
  std::vector<MemoryBlock> apart{{.bytes = int64_t{1} << 62, .firstStep = 0, .lastStep = 0},
                                 {.bytes = int64_t{1} << 62, .firstStep = 1, .lastStep = 1}};
  EXPECT_EQ(planMemory(apart), int64_t{1} << 62);
  std::vector<MemoryBlock> one{{.bytes = INT64_MAX, .firstStep = 0, .lastStep = 1}};
  EXPECT_THROW((void)planMemory(one), UserError);
}

}  // namespace

}  // namespace meshfuse
